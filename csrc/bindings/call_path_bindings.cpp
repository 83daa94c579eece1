// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "bindings/backward_plan.h"
#include "bindings/class_check.h"
#include "bindings/compiled_function.h"
#include "bindings/compiled_method.h"
#include "bindings/compiled_program_bindings.h"
#include "bindings/frame_call.h"
#include "bindings/mutated_inputs.h"
#include "bindings/program_bindings.h"
#include "bindings/selection.h"
#include "bindings/specialization.h"
#include "bindings/tensor_rows.h"
#include "bindings/tensor_sizes.h"
#include "bindings/view_overlap.h"
#include "runtime/output_allocator.h"

namespace py = pybind11;

namespace hostjit {
namespace {

std::optional<GlobalState::ProcessModes> process_modes_from_python(const py::object& modes) {
  if (modes.is_none()) return std::nullopt;
  const auto parts = modes.cast<py::tuple>();
  return GlobalState::ProcessModes{parts[0].cast<bool>(), parts[1].cast<at::ScalarType>()};
}

std::shared_ptr<Specialization> make_specialization(
    const py::tuple& args, const py::dict& kwargs, std::shared_ptr<CompiledProgram> program,
    const py::sequence& bindings, const py::tuple& output, const py::sequence& watches,
    const py::object& revalidate, bool always_revalidate, std::vector<int64_t> mutated,
    const py::object& route, const std::optional<std::string>& runtime, bool reuse_outputs,
    const py::sequence& numbers, const py::tuple& results, const py::sequence& stores,
    const py::object& row_guard, std::vector<size_t> guarded,
    std::shared_ptr<BackwardPlan> backward, bool any_arguments, const py::object& outside,
    const py::sequence& replaceable, const py::object& condition,
    std::vector<Specialization::StaticLeaf> static_leaves, const py::sequence& aligned,
    const py::object& process_modes, std::string reason, bool retries, const py::dict& by_fields,
    std::vector<std::pair<std::string, size_t>> leaf_checks, const py::object& reads,
    bool in_inference_mode, std::vector<ArgumentSpec::Path> unread) {
  Specialization::Options options;
  options.args = args.ptr();
  options.kwargs = kwargs.ptr();
  options.program = std::move(program);
  options.bindings = bindings.ptr();
  options.output = output.ptr();
  options.watches = watches.ptr();
  options.revalidate = revalidate.ptr();
  options.always_revalidate = always_revalidate;
  options.mutated = std::move(mutated);
  options.route = route.ptr();
  options.runtime = runtime_from_python(runtime);
  options.reuse_outputs = reuse_outputs;
  options.numbers = numbers.ptr();
  options.results = results.ptr();
  options.stores = stores.ptr();
  options.row_guard = row_guard.ptr();
  options.guarded = std::move(guarded);
  options.backward = std::move(backward);
  options.any_arguments = any_arguments;
  options.outside = outside.ptr();
  options.replaceable = replaceable.ptr();
  options.condition = condition.ptr();
  options.static_leaves = std::move(static_leaves);
  options.aligned = aligned.ptr();
  options.process_modes = process_modes_from_python(process_modes);
  options.reason = std::move(reason);
  options.retries = retries;
  options.by_fields = by_fields.ptr();
  options.leaf_checks = std::move(leaf_checks);
  options.reads = reads.ptr();
  options.in_inference_mode = in_inference_mode;
  options.unread = std::move(unread);
  return std::make_shared<Specialization>(options);
}

using PlaceInStorage = std::tuple<std::vector<int64_t>, std::vector<int64_t>, int64_t, int64_t>;

StridedView view_at(const PlaceInStorage& place) {
  const auto& [sizes, strides, offset, itemsize] = place;
  HOSTJIT_CHECK(sizes.size() == strides.size(), "may_overlap: ", sizes.size(), " sizes and ",
                strides.size(), " strides");
  return {sizes, strides, offset, itemsize};
}

// Inputs that are no tensors share no memory.
bool are_reached_twice(const MutatedInputs& written, const py::tuple& inputs) {
  HOSTJIT_CHECK(inputs.size() == written.num_inputs(), "are_reached_twice: ", inputs.size(),
                " inputs, expected ", written.num_inputs());
  static const at::Tensor kNone;
  c10::SmallVector<const at::Tensor*, 16> tensors;
  for (const py::handle input : inputs) {
    const bool is_tensor = THPVariable_Check(input.ptr());
    tensors.push_back(is_tensor ? &THPVariable_Unpack(input.ptr()) : &kNone);
  }
  return written.are_reached_twice(tensors);
}

}  // namespace

void bind_call_path(py::module_& module) {
  bind_compiled_program(module);
  py::class_<BackwardPlan, std::shared_ptr<BackwardPlan>>(
      module, "BackwardPlan",
      "How gradients are computed. 'Result k' is output k of the forward program, 'input i' its\n"
      "input i. updated: the inputs whose new values the first results are. saved: ('input', i) "
      "or\n"
      "('result', k). inputs, one per input of the backward "
      "program:\n"
      "('saved', position), ('tangent', result), ('number', i) for an input i that is no tensor, "
      "a\n"
      "constant, or None for a tensor without elements that tells a size. gradients, one per "
      "forward input: an output of the backward program or\n"
      "None. reached, one per forward input: the results without whose gradients it has none; no\n"
      "entries: each gradient is computed. parts: results whose gradients have nothing that is\n"
      "saved in common with others', and saved_for, per saved tensor, which of these need it; no\n"
      "entries: all are one part. again(inputs, tangents, state): the gradients, in grad\n"
      "mode with a graph. unread: inputs that calls write and whose values do not matter for "
      "that;\ncopied: those whose values before do. draws: `state` is that of the default "
      "generator "
      "when the\ncall began.")
      .def(py::init([](const std::shared_ptr<CompiledProgram>& forward,
                       std::shared_ptr<CompiledProgram> backward, int64_t num_results,
                       std::vector<bool> differentiable, std::vector<int64_t> updated,
                       const py::sequence& saved, const py::sequence& inputs,
                       const py::sequence& gradients,
                       const std::vector<std::vector<int64_t>>& reached,
                       const std::vector<std::vector<int64_t>>& parts,
                       std::vector<std::vector<int64_t>> saved_for, const py::object& again,
                       std::vector<int64_t> unread, std::vector<int64_t> copied, bool draws,
                       const std::optional<std::string>& runtime) {
             return std::make_shared<BackwardPlan>(
                 forward, std::move(backward), num_results, std::move(differentiable),
                 std::move(updated), saved, inputs, gradients, reached, parts, std::move(saved_for),
                 again, std::move(unread), std::move(copied), draws, runtime_from_python(runtime));
           }),
           py::kw_only(), py::arg("forward"), py::arg("backward"), py::arg("num_results"),
           py::arg("differentiable"), py::arg("updated"), py::arg("saved"), py::arg("inputs"),
           py::arg("gradients"), py::arg("reached") = std::vector<std::vector<int64_t>>{},
           py::arg("parts") = std::vector<std::vector<int64_t>>{},
           py::arg("saved_for") = std::vector<std::vector<int64_t>>{},
           py::arg("again") = py::none(), py::arg("unread") = std::vector<int64_t>{},
           py::arg("copied") = std::vector<int64_t>{}, py::arg("draws") = false,
           py::arg("runtime") = py::none())
      .def_property_readonly("program", [](const BackwardPlan& plan) { return plan.program; });
  module.def("class_check", &make_class_check,
             "A function of one argument: whether classes and functions are as they were.",
             py::arg("classes"), py::arg("functions"), py::arg("look"), py::arg("abc_token"));
  module.def("host_description", &host_description,
             "CPU, features and vector math that compiled code depends on.");
  py::class_<Specialization, std::shared_ptr<Specialization>>(
      module, "Specialization",
      "A compiled program with everything that has to hold for it to answer a call.\n\n"
      "watches: see WatchList in the core; ('dict', dict, owner), ('dict_items', dict, owner, "
      "keys,\n"
      "expected, missing), ('cell', cell, (value,) or ()), ('list', list, items),\n"
      "('set', set, items), ('type', type), ('object_type', object, type), ('function', function,\n"
      "code, defaults, kwdefaults), ('fields', object, names), ('slots', object, members), "
      "('tensor', tensor), ('gradient', tensor). revalidate(args, kwargs), called when a\n"
      "watch fails: (watches, bindings, numbers, outside, replaceable, stores, output) to go on "
      "with, output None for the same, or None. "
      "output: nested "
      "tuples\n"
      "('output', i),\n"
      "('number', value), ('argument', leaf), ('object', value), ('tuple' | 'list', nodes), "
      "('dict', keys, nodes),\n"
      "('call', callable, nodes). numbers, which may differ from call to call: (int or float, "
      "least,\n"
      "most, position) among the ints and floats of the arguments, (..., dict, key), or\n"
      "(..., 'structure', (i, position)) in the i-th of ('structure', dict, key, by_fields).\n"
      "results: (sources, steps), numbers that the call returns or stores: ('open', slot) or\n"
      "('object', value), and (callable, positions among the sources and earlier steps). stores:\n"
      "(dict, key, position) or (cell, None, position), done once a call has its result.\n"
      "row_guard(values): whether the program may answer calls with these values of "
      "program.symbols and\n"
      "then of the numbers at `guarded`; asked once for each. any_arguments: the route answers "
      "every\n"
      "call that no other specialization does, under the same global state. outside: tensors that "
      "the\n"
      "capture met outside of the arguments: which tensors are one object has to be as in the "
      "example;\n"
      "None: only what was one object has to be one. replaceable: those of them in whose place a "
      "watched\n"
      "dict or list, or a tuple in it, may hold another that fits the program, and the tuples of\n"
      "which only the length counts. condition(args, "
      "kwargs):\n"
      "asked at each call, when all else holds. static_leaves: (leaf, address), arguments that are "
      "in this\n"
      "memory at each call; None: in that of the first. aligned: leaves, and tensors held by "
      "reference,\n"
      "whose addresses 16 divides at each call. process_modes: (deterministic, default "
      "dtype) of the calls that it "
      "answers;\n"
      "None: as they are now. reason: why there is a route, in words. retries: where the "
      "program\n"
      "fails, which has no effect then, the function itself runs. by_fields: types of arguments "
      "that are\n"
      "compared by what they hold, and pairs of the names of their slots and of the fields that\n"
      "are read, None for all. leaf_checks: (kind, leaf), where\n"
      "kind is 'has_gradient', 'no_gradient', 'unhooked' or 'unmarked' (no attributes of its own). "
      "reads:\n"
      "(program, bindings, expected, runtime) of values that have to be these, or None. "
      "in_inference_mode:\n"
      "the call enters inference mode, computes, and leaves it; the calls that it answers are not "
      "in it. unread: what code\ndoes not look at, none of it a tensor: the position of an "
      "argument, of an item of it and so on.")
      .def(py::init(&make_specialization), py::kw_only(), py::arg("args"), py::arg("kwargs"),
           py::arg("program"), py::arg("bindings"), py::arg("output"),
           py::arg("watches") = py::tuple(), py::arg("revalidate") = py::none(),
           py::arg("always_revalidate") = false, py::arg("mutated") = std::vector<int64_t>{},
           py::arg("route") = py::none(), py::arg("runtime") = py::none(),
           py::arg("reuse_outputs") = false, py::arg("numbers") = py::tuple(),
           py::arg("results") = py::tuple(), py::arg("stores") = py::tuple(),
           py::arg("row_guard") = py::none(), py::arg("guarded") = std::vector<size_t>{},
           py::arg("backward") = py::none(), py::arg("any_arguments") = false,
           py::arg("outside") = py::none(),
           py::arg("replaceable") = py::make_tuple(py::tuple(), py::tuple()),
           py::arg("condition") = py::none(),
           py::arg("static_leaves") = std::vector<Specialization::StaticLeaf>{},
           py::arg("aligned") = py::tuple(), py::arg("process_modes") = py::none(),
           py::arg("reason") = "", py::arg("retries") = false, py::arg("by_fields") = py::dict(),
           py::arg("leaf_checks") = std::vector<std::pair<std::string, size_t>>{},
           py::arg("reads") = py::none(), py::arg("in_inference_mode") = false,
           py::arg("unread") = std::vector<ArgumentSpec::Path>{})
      .def_property_readonly("program", &Specialization::program)
      .def_property_readonly("met_reads_again", &Specialization::met_reads_again)
      .def("describe", &Specialization::describe,
           "Everything that makes it what it is, as data and live objects: to make it again.")
      .def(
          "holds", &Specialization::holds,
          "Whether what was assumed besides the arguments is so now. False may also mean that only "
          "a\ncall can tell.")
      .def_property_readonly("backward", &Specialization::backward);
  module.def(
      "register_bound_dim",
      [](const py::type& type) {
        ArgumentNode::bound_dim_type = reinterpret_cast<PyTypeObject*>(type.ptr());
        type.inc_ref();  // never forgotten
      },
      py::arg("type"), "Lets calls bring values of this subclass of int where they bring ints.");
  module.def(
      "register_plain_tensors",
      [](const py::type& type) {
        auto& types = ArgumentNode::plain_tensor_types;
        auto* const added = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (std::ranges::find(types, added) != types.end()) return;
        types.push_back(added);
        type.inc_ref();  // never forgotten
      },
      py::arg("type"), "Has tensors of this subclass compared as plain tensors are.");
  module.def(
      "register_modules",
      [](const py::type& type, const py::tuple& hooks, const py::tuple& unread,
         const py::tuple& state) {
        ArgumentNode::module_fields = {reinterpret_cast<PyTypeObject*>(type.ptr()), hooks.ptr(),
                                       unread.ptr(), state.ptr()};
        for (py::handle held :
             {py::handle(type), py::handle(hooks), py::handle(unread), py::handle(state)}) {
          held.inc_ref();  // never forgotten
        }
      },
      py::arg("type"), py::arg("hooks"), py::arg("unread"), py::arg("state"),
      "Says what torch.nn.Module is, and by their names which of its fields are dicts that have to "
      "be\nempty, which no call reads, and which are dicts of which nobody asks which one it is: "
      "so\nmodules are compared where types of arguments are compared by their fields.");
  module.def(
      "may_overlap",
      [](const PlaceInStorage& a, const PlaceInStorage& b) {
        return may_overlap(view_at(a), view_at(b));
      },
      py::arg("a"), py::arg("b"),
      "Whether two views of one storage may have a byte in common. Each is its shape, its strides "
      "and "
      "its\nstorage offset, in elements, and the bytes of an element.");
  py::class_<MutatedInputs>(module, "MutatedInputs",
                            "The positions of what a call writes, among its inputs.")
      .def(py::init<std::vector<int64_t>, size_t>(), py::arg("indices"), py::arg("num_inputs"))
      .def("empty", &MutatedInputs::empty)
      .def("are_reached_twice", &are_reached_twice, py::arg("inputs"),
           "Whether another input may have an element of one that is written.");
  module.def(
      "is_held_weakly", [](py::handle object) { return is_held_weakly(object.ptr()); },
      py::arg("object"),
      "Whether a guard that compares an object by identity leaves it to others to keep it.");
  module.def(
      "tensor_of_rows", [](const py::tuple& rows) { return tensor_of_rows(rows.ptr()); },
      py::arg("rows"),
      "The tensor whose rows a tuple holds, all of them, as `x.unbind(0)` makes them; None for "
      "others.");
  module.def("copies_of_rows", &copies_of_rows, py::arg("rows"), py::arg("count"),
             "New tensors with the elements of the first rows of a contiguous tensor on the CPU.");
  module.def("is_plain_leaf", &is_plain_leaf, py::arg("tensor"),
             "Whether a backward pass ends at a tensor, and no node hooks run there.");
  module.def("empty_cache", [] { output_cache().empty(); });
  module.def("cached_bytes", [] { return output_cache().cached_bytes(); });
  module.def(
      "set_cache_limit",
      [](int64_t size) {
        const int64_t limit = output_cache().limit();
        output_cache().set_limit(size);
        return limit;
      },
      py::arg("size"));
  if (!add_compiled_function_type(module.ptr())) throw py::error_already_set();
  if (!add_compiled_method_type(module.ptr())) throw py::error_already_set();
  if (!add_selection_type(module.ptr())) throw py::error_already_set();
  if (!add_frame_calls(module.ptr())) throw py::error_already_set();
  if (!add_tensor_sizes(module.ptr())) throw py::error_already_set();
}

}  // namespace hostjit
