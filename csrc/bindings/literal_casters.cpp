// SPDX-License-Identifier: Apache-2.0
#include "bindings/literal_casters.h"

#include "support/check.h"

namespace py = pybind11;

namespace hostjit {

Literal literal_from_python(const py::handle& value) {
  if (value.is_none()) return {};
  if (py::isinstance<py::bool_>(value)) return {value.cast<bool>()};
  if (py::isinstance<py::int_>(value)) return {value.cast<int64_t>()};
  if (py::isinstance<py::float_>(value)) return {value.cast<double>()};
  if (PyComplex_Check(value.ptr())) {
    return {std::complex<double>(PyComplex_RealAsDouble(value.ptr()),
                                 PyComplex_ImagAsDouble(value.ptr()))};
  }
  if (py::isinstance<py::str>(value)) return {value.cast<std::string>()};
  if (py::isinstance<Literal::Symbol>(value)) return {value.cast<Literal::Symbol>()};
  if (py::isinstance<Literal::Operand>(value)) return {value.cast<Literal::Operand>()};
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    Literal::List list;
    for (const py::handle item : value) list.push_back(literal_from_python(item));
    return {std::move(list)};
  }
  throw_error(concat("a ", Py_TYPE(value.ptr())->tp_name,
                     " is no Host IR literal, expected None, bool, int, float, complex, str, "
                     "Symbol, Operand or a list of these"));
}

py::object literal_to_python(const Literal& literal) {
  struct Convert {
    py::object operator()(std::monostate) const { return py::none(); }
    py::object operator()(bool value) const { return py::bool_(value); }
    py::object operator()(int64_t value) const { return py::int_(value); }
    py::object operator()(double value) const { return py::float_(value); }
    py::object operator()(const std::complex<double>& value) const {
      return py::reinterpret_steal<py::object>(PyComplex_FromDoubles(value.real(), value.imag()));
    }
    py::object operator()(const std::string& value) const { return py::str(value); }
    py::object operator()(const Literal::Symbol& value) const { return py::cast(value); }
    py::object operator()(const Literal::Operand& value) const { return py::cast(value); }
    py::object operator()(const Literal::List& list) const {
      py::list items;
      for (const Literal& item : list) items.append(literal_to_python(item));
      return items;
    }
  };
  return std::visit(Convert{}, literal.value);
}

}  // namespace hostjit
