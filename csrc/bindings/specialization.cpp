// SPDX-License-Identifier: Apache-2.0
#include "bindings/specialization.h"

#include <ATen/core/grad_mode.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include "bindings/backward_plan.h"
#include "passes/insert_deallocations.h"
#include "passes/late_writes.h"
#include "support/check.h"

namespace py = pybind11;

namespace hostjit {
namespace {

// With so many refusals one after the other, calls are not looked at: one, then three, seven.
constexpr int kRefusals = 8;
constexpr int kMostSkipped = 255;

// Without a program the bindings are tensors to guard, and leaves.
std::vector<InputBinding> make_bindings(PyObject* descriptions, const CompiledProgram* program,
                                        size_t num_leaves) {
  std::vector<InputBinding> bindings = input_bindings_from_python(descriptions, num_leaves);
  const size_t num_inputs = program ? program->program().inputs().size() : bindings.size();
  HOSTJIT_CHECK(bindings.size() == num_inputs, "specialization: ", bindings.size(),
                " bindings for ", num_inputs, " program inputs");
  for (size_t i = 0; i < bindings.size(); ++i) {
    const std::optional<DType> expected = bindings[i].number_type();
    if (!program || !expected) continue;
    const Value* input = program->program().inputs()[i];
    HOSTJIT_CHECK(input->type() == Type(TensorType::make(*expected, {})),
                  "specialization: a number is bound to %", input->name(), ": ",
                  to_string(input->type()), ", expected ",
                  *expected == DType::kF64 ? "a float64" : "an int64",
                  " tensor without dims on the CPU");
  }
  return bindings;
}

bool needs_gradient(PyObject* tensor) { return THPVariable_Unpack(tensor).requires_grad(); }

bool any_needs_gradient(const std::vector<PyObject*>& leaves) {
  return std::ranges::any_of(leaves, needs_gradient);
}

bool any_needs_gradient(const std::vector<InputBinding>& bindings) {
  return std::ranges::any_of(bindings,
                             [](const InputBinding& binding) { return binding.needs_gradient(); });
}

// callable(args, kwargs) with the arguments of a call; null when it raises, which nobody sees.
PyRef ask(PyObject* callable, PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames) {
  const PyRef args = PyRef::steal(PyTuple_New(nargs));
  const PyRef kwargs = PyRef::steal(PyDict_New());
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(args.get(), i, Py_NewRef(values[i]));
  const Py_ssize_t num_names = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < num_names; ++i) {
    PyDict_SetItem(kwargs.get(), PyTuple_GET_ITEM(kwnames, i), values[nargs + i]);
  }
  PyRef found =
      PyRef::steal(PyObject_CallFunctionObjArgs(callable, args.get(), kwargs.get(), nullptr));
  if (!found) PyErr_Clear();
  return found;
}

}  // namespace

Specialization::Specialization(const Options& options)
    : state_(options.process_modes ? GlobalState::current_with(*options.process_modes)
                                   : GlobalState::current()),
      arguments_(options.args, options.kwargs, options.by_fields, options.unread),
      numbers_(options.numbers, arguments_),
      results_(options.results, arguments_.example_leaves().size()),
      stores_(options.stores, results_.size()),
      makes_numbers_(results_.size() > 0),
      num_leaves_(arguments_.example_leaves().size()),
      program_(options.program),
      only_row_(program_ && !numbers_.any_items() && options.guarded.empty() ? program_->only_row()
                                                                             : nullptr),
      bindings_(make_bindings(options.bindings, program_.get(), num_leaves_)),
      output_(options.output, num_outputs(), static_cast<Py_ssize_t>(num_leaves_),
              static_cast<Py_ssize_t>(results_.size())),
      watches_(watches_from_python(options.watches, arguments_.weak_objects())),
      known_(watches_.containers()),
      revalidate_(options.revalidate == Py_None ? PyRef() : PyRef::share(options.revalidate)),
      always_revalidate_(options.always_revalidate),
      mutated_(options.mutated, bindings_.size()),
      identities_(arguments_.example_leaves(), options.outside),
      stand_ins_(options.replaceable),
      route_(options.route == Py_None ? PyRef() : PyRef::share(options.route)),
      runtime_(options.runtime),
      reused_(options.reuse_outputs ? std::make_unique<ReusedOutputs>() : nullptr),
      row_guard_(options.row_guard, options.guarded),
      backward_(options.backward),
      any_arguments_(options.any_arguments),
      retries_(options.retries),
      fails_early_(!mutated_.empty() && program_ && !route_ &&
                   writes_inputs_last(program_->program())),
      in_inference_mode_(options.in_inference_mode),
      updates_(backward_ && !backward_->updated.empty()),
      condition_(options.condition == Py_None ? PyRef() : PyRef::share(options.condition)),
      static_leaves_(options.static_leaves),
      leaf_checks_(options.leaf_checks, num_leaves_),
      reads_(options.reads == nullptr || options.reads == Py_None
                 ? nullptr
                 : std::make_unique<ReadCheck>(options.reads, num_leaves_)),
      aligned_(input_bindings_from_python(options.aligned, num_leaves_)),
      has_last_checks_(condition_ || reads_ || leaf_checks_.any() || !static_leaves_.empty() ||
                       !aligned_.empty()),
      reason_(options.reason),
      hides_gradients_(
          at::GradMode::is_enabled() && !in_inference_mode_ &&
          (any_needs_gradient(arguments_.example_leaves()) || any_needs_gradient(bindings_))),
      only_runs_(!backward_ && !reused_ && !hides_gradients_ &&
                 std::ranges::none_of(bindings_, &InputBinding::is_scalar)),
      donates_(program_ && donates_inputs(program_->program()) && !route_ && !backward_ &&
               !reused_ && !in_inference_mode_ && !retries_ && !makes_numbers_ &&
               !output_.has_arguments()) {
  HOSTJIT_CHECK(!any_arguments_ || (route_ && !program_),
                "specialization: only a route without a program takes any arguments");
  for (const auto& [leaf, address] : static_leaves_) {
    HOSTJIT_CHECK(leaf < num_leaves_, "specialization: static leaf ", leaf, " is out of range");
  }
  for (size_t i = 0; i < bindings_.size(); ++i) {
    const std::optional<size_t> slot = bindings_[i].handed_on();
    if (!slot) continue;
    const Type* type = reads_ && program_->only_row() ? reads_->handed_on(*slot) : nullptr;
    HOSTJIT_CHECK(type && *type == program_->program().inputs()[i]->type(),
                  "specialization: nothing that is read hands on input ", i);
  }
  for (PyObject* object : arguments_.example_objects()) {
    known_objects_.push_back(known_object(object));
  }
  arguments_.forget_example();
  if (program_ && program_->rows() != nullptr) free_sizes();
}

void Specialization::free_sizes() {
  std::vector<bool> is_free(num_leaves_, false);
  const std::vector<Value*>& inputs = program_->program().inputs();
  const auto is_symbolic = [&](size_t i) {
    return inputs[i]->is_tensor() && !inputs[i]->tensor_type().is_static();
  };
  for (size_t i = 0; i < bindings_.size(); ++i) {
    if (!is_symbolic(i)) continue;
    if (bindings_[i].leaf() >= 0) is_free[bindings_[i].leaf()] = true;
    bindings_[i].free_sizes();
  }
  // A leaf that is another input, too, without symbols, stays as it was.
  for (size_t i = 0; i < bindings_.size(); ++i) {
    if (bindings_[i].leaf() >= 0 && !is_symbolic(i)) is_free[bindings_[i].leaf()] = false;
  }
  arguments_.free_sizes(is_free);
}

bool Specialization::is_reached_twice(const Leaves& leaves) const {
  c10::SmallVector<const at::Tensor*, 64> inputs;
  for (size_t i = 0; i < bindings_.size(); ++i) inputs.push_back(&input(i, leaves));
  return mutated_.are_reached_twice({inputs.data(), inputs.size()});
}

bool Specialization::may_update(const Leaves& leaves) const {
  using torch::autograd::can_mutate_inplace;
  return std::ranges::all_of(backward_->updated, [&](int64_t i) {
    return can_mutate_inplace(input(i, leaves), /*requires_grad=*/true) ==
           torch::autograd::can_mutate_inplace_result::success;
  });
}

bool Specialization::meets_gradient_elsewhere(const Leaves& leaves) const {
  c10::SmallVector<const c10::TensorImpl*, 64> tensors;
  for (size_t i = 0; i < num_leaves_; ++i) {
    tensors.push_back(THPVariable_Unpack(leaves[i]).unsafeGetTensorImpl());
  }
  for (PyObject* tensor : identities_.outside()) {
    tensors.push_back(THPVariable_Unpack(tensor).unsafeGetTensorImpl());
  }
  std::ranges::sort(tensors, std::less<>());
  return watches_.tensors().reaches_gradient(tensors);
}

bool Specialization::revalidate(PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames,
                                const Leaves& leaves) {
  if (!revalidate_) return false;
  const PyRef found = ask(revalidate_.get(), values, nargs, kwnames);
  if (!found || found.get() == Py_None) return false;
  try {
    const auto renewed = py::reinterpret_borrow<py::tuple>(found.get());
    WatchList watches =
        watches_from_python(py::object(renewed[0]).ptr(), arguments_.weak_objects());
    OpenNumbers numbers(py::object(renewed[2]).ptr(), arguments_);
    NumberStores stores(py::object(renewed[5]).ptr(), results_.size());
    std::optional<OutputSpec> output;
    if (const py::object described = renewed[6]; !described.is_none()) {
      output.emplace(described.ptr(), num_outputs(), static_cast<Py_ssize_t>(num_leaves_),
                     static_cast<Py_ssize_t>(results_.size()));
    }
    identities_.renew(leaves, py::object(renewed[3]).ptr());
    stand_ins_ = StandIns(py::object(renewed[4]).ptr());
    bindings_ = make_bindings(py::object(renewed[1]).ptr(), program_.get(), num_leaves_);
    watches_ = std::move(watches);
    known_ = watches_.containers();
    numbers_ = std::move(numbers);
    stores_ = std::move(stores);
    if (output) output_ = std::move(*output);
    if (program_ && program_->rows() != nullptr) free_sizes();
  } catch (const std::exception&) {
    return false;  // what cannot be watched cannot be trusted
  }
  return true;
}

Py_ssize_t Specialization::num_outputs() const {
  return program_ ? static_cast<Py_ssize_t>(program_->program().outputs().size()) : 0;
}

PyObject* Specialization::known_object(PyObject* object) const {
  return std::ranges::binary_search(known_, object) ? object : nullptr;
}

// An argument that is an object which the code finds elsewhere, too, changes there with it.
bool Specialization::knows_objects(const Leaves& leaves) const {
  if (leaves.objects.size() != known_objects_.size()) return false;
  for (size_t i = 0; i < leaves.objects.size(); ++i) {
    if (known_object(leaves.objects[i]) != known_objects_[i]) return false;
  }
  return true;
}

bool Specialization::match(const GlobalState& state, PyObject* const* values, Py_ssize_t nargs,
                           PyObject* kwnames, Leaves& leaves) {
  leaves.clear();
  leaves.values.clear();
  leaves.number_tensors.clear();
  leaves.handed_on.clear();
  leaves.objects.clear();
  if (any_arguments_) [[unlikely]]
    return state == state_;
  if (!(state == state_) || !arguments_.match(values, nargs, kwnames, leaves)) return false;
  if (leaves.objects.size() > 1 && !arguments_.has_same_objects(leaves)) return false;
  if (always_revalidate_ || !watches_.holds()) [[unlikely]] {
    if (!looks_again(values, nargs, kwnames, leaves)) return false;
  }
  for (InputBinding& binding : bindings_) {
    if (!binding.holds()) return false;
  }
  if (!identities_.hold(leaves)) return false;
  if (watches_.tensors().any_gradients() && meets_gradient_elsewhere(leaves)) return false;
  if (!leaves.objects.empty() && !knows_objects(leaves)) return false;
  if (!find_row(leaves)) return false;  // which reads the numbers that tensors are made of
  if (!mutated_.empty() && is_reached_twice(leaves)) return false;
  if (!has_last_checks_) [[likely]]
    return true;
  return last_checks_hold(values, nargs, kwnames, leaves);
}

bool Specialization::looks_again(PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames,
                                 const Leaves& leaves) {
  if (always_revalidate_) return revalidate(values, nargs, kwnames, leaves);
  if (num_skipped_ < num_to_skip_) {
    ++num_skipped_;
    return false;
  }
  const bool holds =
      watches_hold() || (!stand_ins_.refused() && revalidate(values, nargs, kwnames, leaves));
  num_refused_ = holds ? 0 : num_refused_ + 1;
  num_skipped_ = 0;
  num_to_skip_ = num_refused_ < kRefusals ? 0 : std::min(num_to_skip_ * 2 + 1, kMostSkipped);
  return holds;
}

bool Specialization::last_checks_hold(PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames,
                                      const Leaves& leaves) {
  const auto address_of = [&](size_t leaf) {
    return std::bit_cast<uint64_t>(THPVariable_Unpack(leaves[leaf]).const_data_ptr());
  };
  for (const auto& [leaf, address] : static_leaves_) {
    if (address && *address != address_of(leaf)) return false;
  }
  if (!leaf_checks_.hold(leaves)) return false;
  // Ahead of the condition, which may launch kernels.
  for (const InputBinding& binding : aligned_) {
    const void* address = binding.tensor(leaves).const_data_ptr();
    if (std::bit_cast<uint64_t>(address) % kAligned != 0) return false;
  }
  if (condition_) {
    const PyRef answer = ask(condition_.get(), values, nargs, kwnames);
    if (!answer || answer.get() != Py_True) return false;
  }
  if (reads_ && !reads_->holds(leaves)) return false;
  if (condition_ || reads_) {  // meanwhile another thread may have run
    for (InputBinding& binding : bindings_) {
      if (binding.is_attribute() && !binding.holds()) return false;
    }
  }
  for (auto& [leaf, address] : static_leaves_) {
    if (!address) address = address_of(leaf);
  }
  return true;
}

bool Specialization::watches_hold() {
  return watches_.holds() ||
         stand_ins_.take({watches_, bindings_, identities_, numbers_, stores_, output_, known_});
}

bool Specialization::holds() {
  return has_its_objects() && watches_hold() &&
         std::ranges::all_of(bindings_, &InputBinding::holds);
}

bool Specialization::find_row_of_call(Leaves& leaves) {
  if (!numbers_.read_items(leaves)) return false;
  if (numbers_.any_computed() && !compute_open_numbers(leaves)) return false;
  if (!program_) return true;
  leaves.row = program_->only_row();
  if (leaves.row != nullptr) return row_guard_.accepts({}, numbers_, leaves);
  ProgramRow* last = program_->rows()->last();
  const bool is_last = row_guard_.slots().empty() && last != nullptr && last->id() == last_row_ &&
                       last->fits(RowInputs{*this, leaves});
  leaves.row = is_last ? last : find_other_row(leaves);
  return leaves.row != nullptr;
}

bool Specialization::compute_open_numbers(Leaves& leaves) const {
  if (compute(leaves)) return numbers_.read_computed(leaves);
  PyErr_Clear();
  leaves.values.clear();
  return false;  // eager has the last word
}

ProgramRow* Specialization::find_other_row(const Leaves& leaves) {
  const RowInputs inputs{*this, leaves};
  const std::optional<RowSizes> sizes = program_->rows()->sizes_of(inputs);
  if (!sizes) return nullptr;
  if (!row_guard_.accepts(*sizes, numbers_, leaves)) return nullptr;
  try {
    ProgramRow* row = program_->rows()->get(*sizes).get();
    if (!row->fits(inputs)) return nullptr;
    if (backward_) backward_->program->row(backward_->sizes_of(*row));  // may not have it
    last_row_ = row->id();
    return row;
  } catch (const Error&) {
    row_guard_.refuse(*sizes, leaves);  // sizes that the program can't have
    return nullptr;
  }
}

int Specialization::traverse(visitproc visit, void* arg) const {
  if (const int status = arguments_.traverse(visit, arg)) return status;
  if (const int status = output_.traverse(visit, arg)) return status;
  if (const int status = watches_.traverse(visit, arg)) return status;
  if (const int status = numbers_.traverse(visit, arg)) return status;
  if (const int status = results_.traverse(visit, arg)) return status;
  if (const int status = stores_.traverse(visit, arg)) return status;
  for (const auto* held : {&bindings_, &aligned_}) {
    for (const InputBinding& binding : *held) {
      if (const int status = binding.traverse(visit, arg)) return status;
    }
  }
  Py_VISIT(revalidate_.get());
  Py_VISIT(route_.get());
  Py_VISIT(row_guard_.callable().get());
  Py_VISIT(condition_.get());
  if (reads_) {
    if (const int status = reads_->traverse(visit, arg)) return status;
  }
  return 0;
}

}  // namespace hostjit
