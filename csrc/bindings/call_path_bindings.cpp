// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings/compiled_function.h"
#include "bindings/compiled_program.h"
#include "bindings/program_bindings.h"
#include "bindings/program_call.h"
#include "bindings/specialization.h"
#include "ir/printer.h"
#include "passes/memory_plan_report.h"

namespace py = pybind11;

namespace hostjit {
namespace {

RuntimeChoice runtime_from_python(const std::optional<std::string>& name) {
  if (!name) return RuntimeChoice::kKnob;
  if (*name == "jit") return RuntimeChoice::kJit;
  if (*name == "evaluator") return RuntimeChoice::kEvaluator;
  throw_error(concat("unknown runtime '", *name, "', expected 'jit' or 'evaluator'"));
}

// Watches as (kind, ...) tuples, see the docstring of Specialization.
WatchList watches_from_python(const py::sequence& entries) {
  WatchList watches;
  for (const py::handle entry : entries) {
    const auto parts = py::reinterpret_borrow<py::tuple>(entry);
    const auto kind = parts[0].cast<std::string>();
    const auto part = [&](size_t i) { return py::object(parts[i]).ptr(); };
    if (kind == "dict_version") {
      watches.add_dict_version(part(1));
    } else if (kind == "type_version") {
      watches.add_type_version(part(1));
    } else if (kind == "dict_item") {
      watches.add_dict_item(part(1), part(2), parts.size() > 3 ? part(3) : nullptr);
    } else if (kind == "cell") {
      watches.add_cell(part(1), parts.size() > 2 ? part(2) : nullptr);
    } else if (kind == "items") {
      watches.add_items(part(1), part(2));
    } else {
      throw_error(concat("unknown watch '", kind,
                         "', expected dict_version, type_version, dict_item, cell or items"));
    }
  }
  return watches;
}

std::shared_ptr<Specialization> make_specialization(
    const py::tuple& args, const py::dict& kwargs, std::shared_ptr<CompiledProgram> program,
    const py::sequence& bindings, const py::tuple& output, const py::sequence& watches,
    const py::object& recheck, bool always_recheck, std::vector<int64_t> mutated,
    const py::object& route, const std::optional<std::string>& runtime) {
  Specialization::Options options;
  options.args = args.ptr();
  options.kwargs = kwargs.ptr();
  options.program = std::move(program);
  options.bindings = bindings.ptr();
  options.output = output.ptr();
  options.watches = watches_from_python(watches);
  options.recheck = recheck.ptr();
  options.always_recheck = always_recheck;
  options.mutated = std::move(mutated);
  options.route = route.ptr();
  options.runtime = runtime_from_python(runtime);
  return std::make_shared<Specialization>(options);
}

void add_input(ProgramCall& call, const Value& input, const py::handle& argument) {
  if (const auto* type = std::get_if<TensorType>(&input.type())) {
    HOSTJIT_CHECK(THPVariable_Check(argument.ptr()), "input %", input.name(), " is a ",
                  Py_TYPE(argument.ptr())->tp_name, ", expected ", to_string(input.type()));
    const at::Tensor& tensor = THPVariable_Unpack(argument.ptr());
    const bool fits =
        tensor.layout() == at::kStrided && type->is_static() &&
        toString(tensor.scalar_type()) != nullptr &&
        tensor.sizes() == at::IntArrayRef(type->sizes()) &&
        (tensor.strides() == at::IntArrayRef(type->static_strides()) ||
         (type->is_contiguous() && tensor.is_contiguous()));
    HOSTJIT_CHECK(fits, "input %", input.name(), " is a ", tensor.layout(), " tensor of sizes ",
                  tensor.sizes(), " and strides ", tensor.layout() == at::kStrided ? tensor.strides() : at::IntArrayRef{},
                  ", expected ", to_string(input.type()));
    HOSTJIT_CHECK(tensor.scalar_type() == to_scalar_type(type->dtype) &&
                      tensor.device() == to_torch(type->device),
                  "input %", input.name(), " is ", tensor.scalar_type(), " on ", tensor.device(),
                  ", expected ", to_string(input.type()));
    call.add_tensor(argument.ptr());
  } else if (std::holds_alternative<F64Type>(input.type())) {
    call.add_f64(argument.cast<double>());
  } else {
    call.add_index(argument.cast<int64_t>());
  }
}

// Runs a program on checked inputs; the way of tools and tests, not the fast one.
py::object run_program(CompiledProgram& program, const py::sequence& arguments,
                       const std::optional<std::string>& runtime) {
  const std::vector<Value*>& inputs = program.program().inputs();
  HOSTJIT_CHECK(arguments.size() == inputs.size(), "program '", program.program().name(), "' takes ",
                inputs.size(), " inputs, got ", arguments.size());
  const RuntimeChoice choice = runtime_from_python(runtime);
  const bool evaluator = choice == RuntimeChoice::kEvaluator ||
                         (choice == RuntimeChoice::kKnob && !host_ir_jit_enabled());
  ProgramCall call(program);
  for (size_t i = 0; i < inputs.size(); ++i) add_input(call, *inputs[i], arguments[i]);
  if (!call.run(evaluator ? program.evaluator_main() : program.jit_main())) {
    throw py::error_already_set();
  }
  py::list outputs;
  for (size_t i = 0; i < program.program().outputs().size(); ++i) {
    outputs.append(py::reinterpret_borrow<py::object>(call.outputs()[i]));
  }
  return outputs;
}

}  // namespace

void bind_call_path(py::module_& module) {
  py::class_<CompiledProgram, std::shared_ptr<CompiledProgram>>(
      module, "CompiledProgram", "A program after the passes, runnable by both runtimes.")
      .def(py::init([](const Program& program) {
             return std::make_shared<CompiledProgram>(program.clone());
           }),
           py::arg("program"))
      .def("run", &run_program, py::arg("arguments"), py::arg("runtime") = py::none(),
           "Runs on a list of tensors and scalars; returns the list of outputs.")
      .def_property_readonly("program",
                             [](const CompiledProgram& p) {
                               return std::make_shared<Program>(p.program().clone());
                             })
      .def("host_ir", [](const CompiledProgram& p) { return to_string(p.program()); })
      .def("llvm_ir", [](const CompiledProgram& p, bool optimized) {
             return optimized ? p.module().llvm_ir() : p.module().unoptimized_llvm_ir();
           },
           py::arg("optimized") = true)
      .def("asm", [](const CompiledProgram& p) { return p.module().assembly(); })
      .def("memory_plan", [](const CompiledProgram& p) { return memory_plan_report(p.program()); })
      .def("timings", [](const CompiledProgram& p) {
        py::dict timings;
        for (const PassTiming& pass : p.pass_timings()) {
          timings[py::str("pass " + pass.name)] = pass.microseconds / 1e3;
        }
        timings["emit"] = p.module().timings().emit;
        timings["optimize"] = p.module().timings().optimize;
        timings["generate"] = p.module().timings().generate;
        timings["link"] = p.module().timings().link;
        return timings;
      }, "Milliseconds of each pass and of LLVM's stages.");
  py::class_<Specialization, std::shared_ptr<Specialization>>(
      module, "Specialization",
      "A compiled program with everything that has to hold for it to answer a call.\n\n"
      "watches: ('dict_version', dict), ('type_version', type), ('dict_item', dict, key[, value]),\n"
      "('cell', cell[, value]), ('items', sequence, tuple). output: nested tuples\n"
      "('output', i), ('argument', leaf), ('object', value), ('tuple' | 'list', nodes),\n"
      "('dict', keys, nodes), ('call', callable, nodes).")
      .def(py::init(&make_specialization), py::kw_only(), py::arg("args"), py::arg("kwargs"),
           py::arg("program"), py::arg("bindings"), py::arg("output"),
           py::arg("watches") = py::tuple(), py::arg("recheck") = py::none(),
           py::arg("always_recheck") = false, py::arg("mutated") = std::vector<int64_t>{},
           py::arg("route") = py::none(), py::arg("runtime") = py::none())
      .def_property_readonly("program", &Specialization::program);
  if (!add_compiled_function_type(module.ptr())) throw py::error_already_set();
}

}  // namespace hostjit
