// SPDX-License-Identifier: Apache-2.0
#include "bindings/op_fields.h"

#include <pybind11/stl.h>

#include <optional>

#include "bindings/literal_casters.h"
#include "ir/printer.h"
#include "ir/visitor.h"

namespace py = pybind11;

namespace hostjit {
namespace {

// Fills the fields of a payload from a Python dict.
class FieldsFromPython {
 public:
  FieldsFromPython(const std::shared_ptr<Program>& program, std::string_view op,
                   const py::dict& fields, const py::sequence& result_types,
                   const std::vector<std::string>& result_names)
      : program_(program),
        op_(op),
        fields_(fields),
        result_types_(result_types),
        result_names_(result_names) {}

  void operand(std::string_view name, Value*& value, Access) {
    const std::optional<py::object> found = find(name);
    HOSTJIT_CHECK(found && !found->is_none(), op_, ": '", name, "' is missing, expected a value");
    value = to_value(name, *found);
  }
  void optional_operand(std::string_view name, Value*& value, Access) {
    const std::optional<py::object> found = find(name);
    if (found && !found->is_none()) value = to_value(name, *found);
  }
  void operands(std::string_view name, std::vector<Value*>& values, Access) {
    const std::optional<py::object> found = find(name);
    if (!found) return;
    for (const py::handle item : *found) values.push_back(to_value(name, item));
  }
  template <class T>
  void attribute(std::string_view name, T& value, const auto&) {
    const std::optional<py::object> found = find(name);
    if (!found) return;
    try {
      convert(*found, value);
    } catch (const py::cast_error&) {
      throw_error(concat(op_, ": '", name, "' is a ", Py_TYPE(found->ptr())->tp_name,
                         ", which does not fit"));
    }
  }
  void result(std::string_view, Value*& value, ResultKind) { value = next_result(); }
  void results(std::string_view, std::vector<Value*>& values, ResultKind) {
    while (next_type_ < result_types_.size()) values.push_back(next_result());
  }
  void region(std::string_view, const NestedRegion&) {}

  void finish() const {
    HOSTJIT_CHECK(next_type_ == result_types_.size(), op_, ": ", result_types_.size(),
                  " result types, expected ", next_type_);
    for (const auto& [name, value] : fields_) {
      const auto text = name.cast<std::string>();
      HOSTJIT_CHECK(std::ranges::find(seen_, text) != seen_.end(), op_, ": unknown field '", text,
                    "', expected one of: ", names());
    }
  }

 private:
  std::optional<py::object> find(std::string_view name) {
    seen_.emplace_back(name);
    const py::str key{std::string(name)};
    if (!fields_.contains(key)) return std::nullopt;
    return fields_[key].cast<py::object>();
  }
  Value* to_value(std::string_view name, const py::handle& object) const {
    HOSTJIT_CHECK(py::isinstance<PyValue>(object), op_, ": '", name, "' is a ",
                  Py_TYPE(object.ptr())->tp_name, ", expected a Value");
    const auto& value = object.cast<const PyValue&>();
    HOSTJIT_CHECK(value.program == program_, op_, ": '", name, "' is %", value.value->name(),
                  " of another program");
    return value.value;
  }
  Value* next_result() {
    HOSTJIT_CHECK(next_type_ < result_types_.size(), op_, ": the type of result ", next_type_,
                  " is missing");
    const size_t position = next_type_++;
    const std::string name = position < result_names_.size() ? result_names_[position] : "";
    HOSTJIT_CHECK(!program_->has_name(name), op_, ": a value %", name,
                  " exists, expected a new name");
    return program_->add_value(type_from_python(result_types_[position]), name);
  }
  std::string names() const {
    std::string text;
    for (const std::string& name : seen_) text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  static void convert(const py::object& from, Literal& to) { to = literal_from_python(from); }
  static void convert(const py::object& from, std::vector<Literal>& to) {
    for (const py::handle item : from) to.push_back(literal_from_python(item));
  }
  static void convert(const py::object& from, Dim& to) { to = dim_from_python(from); }
  static void convert(const py::object& from, std::vector<Dim>& to) {
    for (const py::handle item : from) to.push_back(dim_from_python(item));
  }
  static void convert(const py::object& from, IndexOperation& to) {
    to = index_operation_from_string(from.cast<std::string>());
  }
  template <class T>
  static void convert(const py::object& from, T& to) {
    to = from.cast<T>();
  }

  const std::shared_ptr<Program>& program_;
  std::string_view op_;
  const py::dict& fields_;
  const py::sequence& result_types_;
  const std::vector<std::string>& result_names_;
  size_t next_type_ = 0;
  std::vector<std::string> seen_;
};

struct FieldsToPython {
  const std::shared_ptr<Program>& program;
  py::dict fields;

  py::object wrap(Value* value) const {
    return value ? py::cast(PyValue{program, value}) : py::none();
  }
  py::list wrap(const std::vector<Value*>& values) const {
    py::list list;
    for (Value* value : values) list.append(wrap(value));
    return list;
  }
  void set(std::string_view name, const py::object& value) {
    fields[py::str(std::string(name))] = value;
  }
  void operand(std::string_view name, Value* value, Access) { set(name, wrap(value)); }
  void optional_operand(std::string_view name, Value* value, Access) { set(name, wrap(value)); }
  void operands(std::string_view name, const std::vector<Value*>& values, Access) {
    set(name, wrap(values));
  }
  void result(std::string_view name, Value* value, ResultKind) { set(name, wrap(value)); }
  void results(std::string_view name, const std::vector<Value*>& values, ResultKind) {
    set(name, wrap(values));
  }
  void region(std::string_view name, const NestedRegion& region) {
    set(name, ops_to_python(program, *region));
  }
  void attribute(std::string_view name, const Literal& value, const auto&) {
    set(name, literal_to_python(value));
  }
  void attribute(std::string_view name, const std::vector<Literal>& values, const auto&) {
    set(name, literal_to_python({Literal::List(values)}));
  }
  void attribute(std::string_view name, const Dim& value, const auto&) {
    set(name, dim_to_python(value));
  }
  void attribute(std::string_view name, const std::vector<Dim>& values, const auto&) {
    py::list list;
    for (const Dim& value : values) list.append(dim_to_python(value));
    set(name, list);
  }
  void attribute(std::string_view name, IndexOperation value, const auto&) {
    set(name, py::str(std::string(to_string(value))));
  }
  template <class T>
  void attribute(std::string_view name, const T& value, const auto&) {
    set(name, py::cast(value));
  }
};

}  // namespace

OpVariant op_from_python(const std::shared_ptr<Program>& program, const std::string& name,
                         const py::dict& fields, const py::sequence& result_types,
                         const std::vector<std::string>& result_names) {
  std::string valid;
#define HOSTJIT_OP_BY_NAME(type)                                                             \
  if (name == type::kInfo.name) {                                                            \
    type payload;                                                                            \
    FieldsFromPython visitor(program, type::kInfo.name, fields, result_types, result_names); \
    type::fields(payload, visitor);                                                          \
    visitor.finish();                                                                        \
    return payload;                                                                          \
  }                                                                                          \
  valid += concat(valid.empty() ? "" : ", ", type::kInfo.name);
  HOSTJIT_FOR_EACH_OP(HOSTJIT_OP_BY_NAME)
#undef HOSTJIT_OP_BY_NAME
  throw_error(concat("unknown op '", name, "', expected one of: ", valid));
}

py::list ops_to_python(const std::shared_ptr<Program>& program, const Region& region) {
  py::list ops;
  for (const auto& op : region) {
    FieldsToPython visitor{program, {}};
    visit_fields(*op, visitor);
    ops.append(PyOp{std::string(op->name()), op->location, to_string(*op), visitor.fields});
  }
  return ops;
}

Dim dim_from_python(const py::handle& dim) {
  if (py::isinstance<py::str>(dim)) {
    auto name = dim.cast<std::string>();
    HOSTJIT_CHECK(!name.empty(), "a symbol has no name");
    return Dim::make_symbol(std::move(name));
  }
  return dim.cast<int64_t>();
}

py::object dim_to_python(const Dim& dim) {
  if (dim.is_constant()) return py::int_(dim.value);
  return py::str(dim.symbol);
}

Type type_from_python(const py::handle& type) {
  if (py::isinstance<TensorType>(type)) return type.cast<TensorType>();
  const auto text = py::str(type).cast<std::string>();
  for (const Type& scalar : {Type(IndexType{}), Type(F64Type{}), Type(BoolType{}),
                             Type(StreamType{}), Type(EventType{})}) {
    if (to_string(scalar) == text) return scalar;
  }
  throw_error(concat("unknown type '", text,
                     "', expected a TensorType, 'index', 'f64', 'bool', 'stream' or 'event'"));
}

py::object type_to_python(const Type& type) {
  if (const auto* tensor = std::get_if<TensorType>(&type)) return py::cast(*tensor);
  return py::str(to_string(type));
}

}  // namespace hostjit
