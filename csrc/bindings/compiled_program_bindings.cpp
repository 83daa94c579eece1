// SPDX-License-Identifier: Apache-2.0
#include "bindings/compiled_program_bindings.h"

#include <pybind11/stl.h>
#include <torch/csrc/Stream.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "bindings/program_call.h"
#include "ir/printer.h"
#include "passes/late_writes.h"
#include "passes/memory_plan_report.h"
#include "runtime/torch_types.h"
#include "support/check.h"

namespace py = pybind11;

namespace hostjit {
namespace {

bool fits(const TensorType& type, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.scalar_type() != to_torch(type.dtype) ||
      tensor.device() != to_torch(type.device) || tensor.dim() != type.rank()) {
    return false;
  }
  if (!type.is_static()) return true;  // the row says
  if (tensor.sizes() != at::IntArrayRef(type.sizes())) return false;
  return tensor.strides() == at::IntArrayRef(type.static_strides()) ||
         (type.is_contiguous() && tensor.is_contiguous());
}

std::string describe(const at::Tensor& tensor) {
  std::string text = concat("a ", tensor.scalar_type(), " tensor of sizes ", tensor.sizes());
  if (tensor.layout() == at::kStrided) {
    text += concat(" and strides ", tensor.strides());
  } else {
    text += concat(" and layout ", tensor.layout());
  }
  return text + concat(" on ", tensor.device());
}

// The same for an input that is a stream.
void check_stream(const Program& program, const Value& input, const py::object& argument) {
  const auto fail = [&](const std::string& found, const std::string& expected) {
    throw_error(concat("program '", program.name(), "': input %", input.name(), " is ", found,
                       ", expected ", expected));
  };
  if (!THPStream_Check(argument.ptr())) {
    fail(concat("a ", Py_TYPE(argument.ptr())->tp_name), "a torch.Stream");
  }
  const std::optional<Device> device = program.cuda_device();
  const std::string found = py::str(argument.attr("device"));
  if (!device || found != to_string(*device)) {
    fail(concat("a stream of ", found),
         device ? concat("one of ", to_string(*device)) : "a program with tensors on its device");
  }
}

// Throws Error that names the input, what was expected and what was found.
void check_inputs(const Program& program, const py::sequence& arguments) {
  HOSTJIT_CHECK(arguments.size() == program.inputs().size(), "program '", program.name(),
                "' takes ", program.inputs().size(), " inputs, got ", arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Value& input = *program.inputs()[i];
    const py::object argument = arguments[i];
    const auto expect = [&](bool condition, const std::string& found) {
      HOSTJIT_CHECK(condition, "program '", program.name(), "': input %", input.name(), " is ",
                    found, ", expected ", to_string(input.type()));
    };
    const std::string kind = concat("a ", Py_TYPE(argument.ptr())->tp_name);
    if (input.is_tensor()) {
      expect(THPVariable_Check(argument.ptr()), kind);
      const at::Tensor& tensor = THPVariable_Unpack(argument.ptr());
      expect(fits(input.tensor_type(), tensor), describe(tensor));
    } else if (std::holds_alternative<StreamType>(input.type())) {
      check_stream(program, input, argument);
    } else if (std::holds_alternative<F64Type>(input.type())) {
      expect(PyFloat_Check(argument.ptr()) || PyLong_Check(argument.ptr()), kind);
    } else if (std::holds_alternative<BoolType>(input.type())) {
      expect(PyBool_Check(argument.ptr()), kind);
    } else {
      expect(PyLong_Check(argument.ptr()), kind);
    }
  }
}

// The row that answers a call with these inputs. Throws Error for inputs that don't fit.
ProgramRow& checked_row(CompiledProgram& program, const py::sequence& arguments) {
  check_inputs(program.program(), arguments);
  if (ProgramRow* row = program.only_row()) return *row;
  struct Inputs {
    const py::sequence& arguments;
    const at::Tensor& tensor(size_t i) const {
      return THPVariable_Unpack(py::object(arguments[i]).ptr());
    }
    int64_t number(size_t i) const { return arguments[i].cast<int64_t>(); }
  };
  const Inputs inputs{arguments};
  ProgramRow& row = *program.rows()->get(program.rows()->sizes_of(inputs).value());
  const Program found = program.rows()->program_of(row);
  for (size_t i = 0; i < found.inputs().size(); ++i) {
    const Value& input = *found.inputs()[i];
    if (!input.is_tensor()) continue;
    const at::Tensor& tensor = inputs.tensor(i);
    HOSTJIT_CHECK(fits(input.tensor_type(), tensor), "program '", found.name(), "': input %",
                  input.name(), " is ", describe(tensor), ", expected ", to_string(input.type()),
                  " with these sizes of the other inputs");
  }
  return row;
}

// `sizes` for the symbols of the program, in their order.
Program program_of_row(const CompiledProgram& program, const RowSizes& sizes) {
  const size_t expected = program.rows() ? program.rows()->symbols().num_inputs() : 0;
  HOSTJIT_CHECK(sizes.size() == expected, "program '", program.program().name(), "' has ", expected,
                " symbols, got ", sizes.size(), " sizes");
  return program.rows() ? program.rows()->program_of(sizes) : program.program().clone();
}

void set_input(ProgramCall& call, size_t i, const Value& input, const py::handle& argument) {
  if (input.is_tensor()) {
    call.set_tensor(i, THPVariable_Unpack(argument.ptr()));
  } else if (std::holds_alternative<StreamType>(input.type())) {
    call.set_stream(i, {argument.attr("stream_id").cast<int64_t>(),
                        argument.attr("device_index").cast<int32_t>()});
  } else if (std::holds_alternative<F64Type>(input.type())) {
    call.set_f64(i, argument.cast<double>());
  } else {
    call.set_index(i, argument.cast<int64_t>());
  }
}

// Runs a program on checked inputs; the way of tools and tests, not the fast one.
py::object run_program(CompiledProgram& program, const py::sequence& arguments,
                       const std::optional<std::string>& runtime) {
  const std::vector<Value*>& inputs = program.program().inputs();
  ProgramRow& row = checked_row(program, arguments);
  const RuntimeChoice choice = runtime_from_python(runtime);
  ProgramCall call(program, row);
  for (size_t i = 0; i < inputs.size(); ++i) set_input(call, i, *inputs[i], arguments[i]);
  if (!call.run(program.main(choice, row))) {
    throw py::error_already_set();
  }
  py::list outputs;
  for (size_t i = 0; i < program.program().outputs().size(); ++i) {
    outputs.append(py::reinterpret_borrow<py::object>(static_cast<PyObject*>(call.outputs()[i])));
  }
  return outputs;
}

}  // namespace

RuntimeChoice runtime_from_python(const std::optional<std::string>& name) {
  if (!name) return RuntimeChoice::kKnob;
  if (*name == "jit") return RuntimeChoice::kJit;
  if (*name == "evaluator") return RuntimeChoice::kEvaluator;
  throw_error(concat("unknown runtime '", *name, "', expected 'jit' or 'evaluator'"));
}

void bind_compiled_program(py::module_& module) {
  py::class_<CompiledProgram, std::shared_ptr<CompiledProgram>>(
      module, "CompiledProgram", "A program after the passes, runnable by both runtimes.")
      .def(py::init([](const Program& program) {
             return std::make_shared<CompiledProgram>(program.clone());
           }),
           py::arg("program"))
      .def_static(
          "restore",
          [](const Program& program, const std::optional<std::pair<py::bytes, py::bytes>>& code) {
            if (!code) return CompiledProgram::restore(program.clone(), nullptr);
            const PortableCode portable{code->first, code->second};
            return CompiledProgram::restore(program.clone(), &portable);
          },
          py::arg("program"), py::arg("code") = py::none(),
          "Of a program after the passes: links code that portable_code() returned, or compiles "
          "the\nprogram where that does not fit.")
      .def_property_readonly(
          "writes_inputs_last",
          [](const CompiledProgram& self) { return writes_inputs_last(self.program()); },
          "Whether nothing has happened yet where a run of it raises, but for out of memory.")
      .def_property_readonly("is_linked", &CompiledProgram::is_linked,
                             "Whether restore() linked the code that it was given.")
      .def(
          "portable_code",
          [](const CompiledProgram& p) {
            const PortableCode code = p.module().portable_code();
            return py::make_tuple(py::bytes(code.key), py::bytes(code.objects));
          },
          "A digest of all that decides the code, and the code: for restore(), in any process.")
      .def(
          "check",
          [](const CompiledProgram& p, const py::sequence& arguments) {
            check_inputs(p.program(), arguments);
          },
          py::arg("arguments"), "Raises hostjit.Error unless these inputs fit the program's types.")
      .def("run", &run_program, py::arg("arguments"), py::arg("runtime") = py::none(),
           "Runs on a list of tensors and scalars; returns the list of outputs.")
      .def_property_readonly(
          "program",
          [](const CompiledProgram& p) { return std::make_shared<Program>(p.program().clone()); })
      .def_property_readonly(
          "symbols",
          [](const CompiledProgram& p) {
            return p.rows() ? p.rows()->symbols().input_names() : std::vector<std::string>();
          },
          "Sizes of inputs that each call may have anew, by name, in the order of their ops.")
      .def_property_readonly(
          "num_rows", [](const CompiledProgram& p) { return p.rows() ? p.rows()->size() : 1; },
          "Combinations of sizes that calls had, as far as they are kept; 1 without symbols.")
      .def_property_readonly(
          "last_sizes",
          [](const CompiledProgram& p) -> std::optional<RowSizes> {
            return p.rows() ? p.rows()->last_sizes() : std::nullopt;
          },
          "What the last call had for the symbols; None without symbols.")
      .def("host_ir", [](const CompiledProgram& p) { return to_string(p.program()); })
      .def(
          "llvm_ir",
          [](const CompiledProgram& p, bool optimized) {
            return optimized ? p.module().llvm_ir() : p.module().unoptimized_llvm_ir();
          },
          py::arg("optimized") = true)
      .def("asm", [](const CompiledProgram& p) { return p.module().assembly(); })
      .def(
          "memory_plan",
          [](const CompiledProgram& p, const std::optional<RowSizes>& sizes) {
            return memory_plan_report(sizes ? program_of_row(p, *sizes) : p.program().clone());
          },
          py::arg("sizes") = py::none(), "With symbols: that of the row of these sizes.")
      .def(
          "row_program",
          [](const CompiledProgram& p, const RowSizes& sizes) {
            return std::make_shared<Program>(program_of_row(p, sizes));
          },
          py::arg("sizes"), "The program with these numbers in place of its symbols.")
      .def("begin_timing", &CompiledProgram::begin_timing,
           "Until end_timing(), calls by either runtime run code that times its nodes.")
      .def("end_timing", &CompiledProgram::end_timing)
      .def(
          "take_node_times",
          [](const CompiledProgram& p) {
            const std::span<int64_t> times = p.node_times();
            const std::vector<int64_t> taken(times.begin(), times.end());
            std::ranges::fill(times, 0);
            return taken;
          },
          "What the last call noted, in nanoseconds of a steady clock, and 0 where it noted\n"
          "nothing: two entries at its begin, one after each op of the body, one at the end; then\n"
          "for each op how long the CUDA device worked on it.")
      .def(
          "timings",
          [](const CompiledProgram& p) {
            py::dict timings;
            for (const PassTiming& pass : p.pass_timings()) {
              timings[py::str(concat("pass ", pass.name))] = pass.microseconds / 1e3;
            }
            timings["cache"] = p.module().timings().cache;
            timings["emit"] = p.module().timings().emit;
            timings["optimize"] = p.module().timings().optimize;
            timings["generate"] = p.module().timings().generate;
            timings["link"] = p.module().timings().link;
            return timings;
          },
          "Milliseconds of each pass and of LLVM's stages.");
}

}  // namespace hostjit
