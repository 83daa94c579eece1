// SPDX-License-Identifier: Apache-2.0
#include "bindings/program_bindings.h"

#include <pybind11/stl.h>

#include <optional>

#include "bindings/op_fields.h"
#include "ir/builder.h"
#include "ir/effects.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "ir/visitor.h"
#include "passes/insert_deallocations.h"

namespace py = pybind11;

namespace hostjit {
namespace {

// Appends to a region of a program: the body, or one of an op that another builder made.
struct PyBuilder {
  std::shared_ptr<Program> program;
  Region* region;
  Op* last = nullptr;
};

std::vector<Dim> dims_from_python(const py::sequence& items) {
  std::vector<Dim> dims;
  for (const py::handle item : items) {
    dims.push_back(dim_from_python(item));
  }
  return dims;
}

py::list dims_to_python(const std::vector<Dim>& dims) {
  py::list items;
  for (const Dim& dim : dims) items.append(dim_to_python(dim));
  return items;
}

std::vector<PyValue> wrap(const std::shared_ptr<Program>& program,
                          const std::vector<Value*>& values) {
  std::vector<PyValue> wrapped;
  wrapped.reserve(values.size());
  for (Value* value : values) wrapped.push_back({program, value});
  return wrapped;
}

py::object create(PyBuilder& self, const std::string& name, const py::dict& fields,
                  const py::sequence& result_types, const std::string& location,
                  const std::vector<std::string>& result_names) {
  Builder builder(*self.program, *self.region);
  builder.set_location(location);
  Op& op = builder.create(op_from_python(self.program, name, fields, result_types, result_names));
  self.last = &op;
  const std::vector<PyValue> results = wrap(self.program, results_of(op));
  if (results.empty()) return py::none();
  if (results.size() == 1 && result_types.size() == 1) return py::cast(results[0]);
  return py::cast(results);
}

py::dict regions(const PyBuilder& self) {
  HOSTJIT_CHECK(self.last != nullptr, "builder: no op was created yet");
  py::dict builders;
  for_each_region(*self.last, [&](std::string_view name, NestedRegion& region) {
    builders[py::str(std::string(name))] = PyBuilder{self.program, &*region};
  });
  return builders;
}

void bind_types(py::module_& module) {
  py::class_<Literal::Symbol>(module, "Symbol", "A word of a closed vocabulary: dtype(f32).")
      .def(py::init<std::string, std::string>(), py::arg("kind"), py::arg("word"))
      .def_readonly("kind", &Literal::Symbol::kind)
      .def_readonly("word", &Literal::Symbol::word);
  py::class_<Literal::Operand>(module, "Operand", "A reference to an operand of the node: $0.")
      .def(py::init<int64_t>(), py::arg("index"))
      .def_readonly("index", &Literal::Operand::index);
  py::class_<TensorType>(module, "TensorType", "The type of a strided tensor.")
      .def(py::init([](const std::string& dtype, const py::sequence& dims,
                       const std::optional<py::sequence>& strides, const std::string& device) {
             std::optional<std::vector<Dim>> steps;
             if (strides) steps = dims_from_python(*strides);
             return TensorType::make(dtype_from_string(dtype), dims_from_python(dims), steps,
                                     device_from_string(device));
           }),
           py::arg("dtype"), py::arg("dims"), py::arg("strides") = py::none(),
           py::arg("device") = "cpu")
      .def_property_readonly("dtype", [](const TensorType& t) { return concat(t.dtype); })
      .def_property_readonly("dims", [](const TensorType& t) { return dims_to_python(t.dims); })
      .def_property_readonly("strides",
                             [](const TensorType& t) { return dims_to_python(t.strides); })
      .def_property_readonly("device", [](const TensorType& t) { return to_string(t.device); })
      .def("is_contiguous", &TensorType::is_contiguous)
      .def("__eq__", [](const TensorType& a, const TensorType& b) { return a == b; })
      .def("__str__", [](const TensorType& t) { return to_string(Type(t)); })
      .def("__repr__", [](const TensorType& t) { return to_string(Type(t)); });
}

}  // namespace

void bind_program(py::module_& module) {
  bind_types(module);
  py::class_<PyValue>(module, "Value", "An SSA value of a program.")
      .def_property_readonly("name", [](const PyValue& v) { return v.value->name(); })
      .def_property_readonly("type",
                             [](const PyValue& v) { return type_to_python(v.value->type()); })
      .def("__eq__", [](const PyValue& a, const PyValue& b) { return a.value == b.value; })
      .def("__hash__", [](const PyValue& v) { return std::hash<Value*>{}(v.value); })
      .def("__repr__", [](const PyValue& v) {
        return concat("%", v.value->name(), ": ", to_string(v.value->type()));
      });
  py::class_<PyOp>(module, "Op", "A snapshot of one node of a program.")
      .def_readonly("name", &PyOp::name)
      .def_readonly("location", &PyOp::location)
      .def_readonly("fields", &PyOp::fields)
      .def("__getattr__",
           [](const PyOp& op, const std::string& name) {
             if (op.fields.contains(name)) return op.fields[name.c_str()].cast<py::object>();
             throw py::attribute_error(concat(op.name, " has no field '", name, "'"));
           })
      .def("__repr__", [](const PyOp& op) { return op.text; });
  py::class_<Program, std::shared_ptr<Program>>(module, "Program", "A Host IR program.")
      .def(py::init<std::string>(), py::arg("name"))
      .def_property_readonly("name", &Program::name)
      .def_property_readonly("inputs",
                             [](const std::shared_ptr<Program>& p) { return wrap(p, p->inputs()); })
      .def_property_readonly(
          "outputs", [](const std::shared_ptr<Program>& p) { return wrap(p, p->outputs()); })
      .def_property_readonly(
          "ops", [](const std::shared_ptr<Program>& p) { return ops_to_python(p, p->body()); })
      .def_property_readonly(
          "init_ops", [](const std::shared_ptr<Program>& p) { return ops_to_python(p, p->init()); })
      .def_property_readonly("kernel_languages",
                             [](const Program& p) {
                               py::dict languages;
                               for (const auto& [name, kernel] : p.kernels()) {
                                 languages[py::str(name)] = to_string(kernel.language);
                               }
                               return languages;
                             })
      .def_property_readonly("kernels",
                             [](const Program& p) {
                               py::dict kernels;
                               for (const auto& [name, kernel] : p.kernels()) {
                                 if (kernel.language == KernelLanguage::kCubin) {
                                   kernels[py::str(name)] = py::bytes(kernel.text);
                                 } else {
                                   kernels[py::str(name)] = kernel.text;
                                 }
                               }
                               return kernels;
                             })
      .def_property_readonly("arena_bytes", [](const Program& p) { return p.arena().bytes; })
      .def_property_readonly("device_arena_bytes",
                             [](const Program& p) { return p.device_arena().bytes; })
      .def_property_readonly("arena_lower_bound",
                             [](const Program& p) { return p.arena().lower_bound; })
      .def(
          "add_input",
          [](const std::shared_ptr<Program>& p, const std::string& name, const py::object& type) {
            return PyValue{p, p->add_input(type_from_python(type), name)};
          },
          py::arg("name"), py::arg("type"))
      .def(
          "add_kernel",
          [](Program& p, const std::string& name, const std::string& text,
             const std::string& language, const std::string& entry,
             const std::vector<std::string>& parameters, const py::object& owner) {
            p.add_kernel(kernel_from_python(name, text, language, entry, parameters, owner));
          },
          py::arg("name"), py::arg("text"), py::arg("language") = "llvm_ir", py::arg("entry") = "",
          py::arg("parameters") = std::vector<std::string>(), py::arg("owner") = py::none(),
          "`owner` lives as long as the program and its code.")
      .def(
          "set_outputs",
          [](const std::shared_ptr<Program>& p, const std::vector<PyValue>& outputs) {
            std::vector<Value*> values;
            for (const PyValue& output : outputs) {
              HOSTJIT_CHECK(output.program == p, "program '", p->name(), "': output %",
                            output.value->name(), " belongs to another program");
              values.push_back(output.value);
            }
            p->set_outputs(std::move(values));
          },
          py::arg("outputs"))
      .def("donate_inputs", &donate_inputs, py::arg("positions"),
           "Lets calls give up these inputs. What an output may refer to stays with the caller.")
      .def("verify", [](const Program& p) { verify_program(p); })
      .def("clone", [](const Program& p) { return std::make_shared<Program>(p.clone()); })
      .def("__eq__", [](const Program& a, const Program& b) { return structurally_equal(a, b); })
      .def("__str__", [](const Program& p) { return to_string(p); });
  py::class_<PyBuilder>(module, "Builder",
                        "Appends verified ops to the body of a program, or to a region.")
      .def(py::init([](const std::shared_ptr<Program>& program) {
             return PyBuilder{program, &program->body()};
           }),
           py::arg("program"))
      .def(
          "create", &create, py::arg("op"), py::arg("fields"),
          py::arg("result_types") = py::tuple(), py::arg("location") = "",
          py::arg("result_names") = std::vector<std::string>(),
          "Appends one op; returns its result, a list of results, or None. Results without a name\n"
          "are numbered.")
      .def("regions", &regions, "Builders of the regions of the op created last, by their names.");
  module.def(
      "parse",
      [](const std::string& text) { return std::make_shared<Program>(parse_program(text)); },
      py::arg("text"), "Reads a program from its text form.");
}

}  // namespace hostjit
