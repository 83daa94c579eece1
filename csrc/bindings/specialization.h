// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/argument_spec.h"
#include "bindings/compiled_program.h"
#include "bindings/global_state.h"
#include "bindings/input_binding.h"
#include "bindings/leaf_checks.h"
#include "bindings/mutated_inputs.h"
#include "bindings/number_results.h"
#include "bindings/open_numbers.h"
#include "bindings/output_spec.h"
#include "bindings/read_check.h"
#include "bindings/reused_outputs.h"
#include "bindings/row_guard.h"
#include "bindings/stand_ins.h"
#include "bindings/tensor_identities.h"
#include "bindings/watch_list.h"

namespace hostjit {

struct BackwardPlan;
class ProgramCall;

// References to the arguments of a call that gives them up.
using HeldArguments = c10::SmallVector<PyRef, 16>;

// A compiled program together with everything that has to hold for it to answer a call.
class Specialization : public std::enable_shared_from_this<Specialization> {
 public:
  // What kernels that are compiled for aligned memory want: their widest loads are that wide.
  static constexpr uint64_t kAligned = 16;

  // An argument that is in the same memory at each call; nullopt: the first call tells in which.
  using StaticLeaf = std::pair<size_t, std::optional<uint64_t>>;

  struct Options {
    PyObject* args = nullptr;       // tuple: the example call
    PyObject* kwargs = nullptr;     // dict or null
    PyObject* by_fields = nullptr;  // see ArgumentNode
    std::vector<ArgumentSpec::Path> unread;
    std::shared_ptr<CompiledProgram> program;
    PyObject* bindings = nullptr;  // see InputBinding, one per program input
    PyObject* output = nullptr;    // see OutputSpec
    PyObject* watches = nullptr;   // tuples, see watches_from_python
    // callable(args, kwargs) -> (watches, bindings, numbers, outside, replaceable, stores, output)
    // or None: looks again after a watch failed.
    PyObject* revalidate = nullptr;
    bool always_revalidate = false;  // something that was assumed can't be watched
    std::vector<int64_t> mutated;    // program inputs that the program writes
    PyObject* route = nullptr;       // callable that answers the call in Python, or None
    RuntimeChoice runtime = RuntimeChoice::kKnob;
    bool reuse_outputs = false;   // return the same tensors at every call
    PyObject* numbers = nullptr;  // see OpenNumbers
    PyObject* results = nullptr;  // see NumberResults
    PyObject* stores = nullptr;   // see NumberStores
    PyObject* outside = nullptr;  // see TensorIdentities
    // Of those outside: what is known of them is what a guard of an input knows. Another may be
    // found in their place.
    PyObject* replaceable = nullptr;
    // callable(values) -> bool or None: whether the program may answer calls with these values of
    // its input symbols, and then of the open numbers at `guarded`. Asked once for each.
    PyObject* row_guard = nullptr;
    std::vector<size_t> guarded;
    std::shared_ptr<BackwardPlan> backward;  // null: no result needs a gradient
    bool any_arguments = false;              // the route looks at the arguments itself
    // callable(args, kwargs) -> bool or None: asked at each call, when all else holds.
    PyObject* condition = nullptr;
    std::vector<StaticLeaf> static_leaves;
    std::vector<std::pair<std::string, size_t>> leaf_checks;  // see LeafChecks
    PyObject* reads = nullptr;                                // see ReadCheck, or None
    PyObject* aligned = nullptr;  // tensors as in `bindings`, whose addresses kAligned divides
    // Of the process, under which it is to answer; nullopt: those of now.
    std::optional<GlobalState::ProcessModes> process_modes;
    std::string reason;  // why there is a route, in words
    // Where its program fails, the function itself is to run: the program has no effect then, and
    // the function stores numbers or may handle the error.
    bool retries = false;
    // The call enters inference mode, computes, and leaves it.
    bool in_inference_mode = false;
  };

  // Throws Error when bindings, output or example do not fit the program.
  explicit Specialization(const Options& options);

  // True when this specialization may answer the call; fills `leaves`. Cheap unless a watch
  // failed. May run Python (revalidate), never raises.
  bool match(const GlobalState& state, PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames,
             Leaves& leaves);

  // Has the next match() look at all that has changed, however often that was in vain.
  void skip_no_look() { num_skipped_ = num_to_skip_; }

  // Runs the program on the leaves that match() found. A new reference, or null with a Python
  // error set.
  PyObject* run(const Leaves& leaves);

  // Whether calls may give up their arguments: run_donating() then takes the place of run(). `held`
  // are all references to them that the call has; they are dropped before the program runs.
  bool donates() const { return donates_; }
  PyObject* run_donating(const Leaves& leaves, HeldArguments& held);

  // Whether a call has numbers to return or to store: then compute() comes before it, and store()
  // after it.
  bool makes_numbers() const { return makes_numbers_; }
  // False with a Python error set.
  bool compute(Leaves& leaves) const { return results_.compute(numbers_, leaves); }
  bool store(const Leaves& leaves) const { return stores_.put(leaves.values); }

  // The Python callable that answers calls instead of run(), or null.
  PyObject* route() const { return route_.get(); }

  // It answers every call under its global state.
  bool any_arguments() const { return any_arguments_; }

  // A call had the values that the code has read; false where none are compared here.
  bool met_reads_again() const { return reads_ && reads_->has_held(); }

  // Where run() fails, the function itself is to run.
  bool retries() const { return retries_; }
  // Where it fails, nothing is written yet of what the function, in place, writes before.
  bool fails_early() const { return fails_early_; }

  // Whether calls write inputs that gradients flow through; and whether autograd allows that for
  // those of this call, which are not leaves, nor one of several views that one operator made.
  bool updates() const { return updates_; }
  bool may_update(const Leaves& leaves) const;

  // Objects that calls are to bring are held weakly: without one, no call matches.
  bool has_its_objects() const { return arguments_.has_its_objects(); }

  // Everything that makes it what it is, as Python data and live objects; see descriptions.cpp.
  pybind11::dict describe() const;
  // Whether what was assumed besides the arguments is so now, as far as that can be told without
  // a call. What a next call would take over is taken over.
  bool holds();

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

  const std::shared_ptr<CompiledProgram>& program() const { return program_; }
  // How its gradients are computed, or null.
  const std::shared_ptr<BackwardPlan>& backward() const { return backward_; }

 private:
  const at::Tensor& input(size_t i, const Leaves& leaves) const {
    return bindings_[i].tensor(leaves);
  }
  // The inputs of the program, for rows.
  struct RowInputs {
    const Specialization& specialization;
    const Leaves& leaves;
    const at::Tensor& tensor(size_t i) const { return specialization.input(i, leaves); }
    int64_t number(size_t i) const { return specialization.bindings_[i].scalar(leaves); }
  };
  // No other input may have an element of one that is written.
  bool is_reached_twice(const Leaves& leaves) const;
  // A gradient that is watched is an argument or another tensor that the code reads.
  bool meets_gradient_elsewhere(const Leaves& leaves) const;
  // The dict or list, or null for one that is met among the arguments alone.
  PyObject* known_object(PyObject* object) const;
  bool knows_objects(const Leaves& leaves) const;
  PyObject* run_in_its_mode(const Leaves& leaves);
  PyObject* run_program(const Leaves& leaves);
  // Where more is to be done than that.
  bool run_with_care(ProgramCall& call, MainFunction main, const Leaves& leaves);
  bool run_for_inference(ProgramCall& call, MainFunction main, const Leaves& leaves);
  bool run_for_training(ProgramCall& call, MainFunction main, const Leaves& leaves);
  bool run_reusing(ProgramCall& call, MainFunction main, const Leaves& leaves);
  // The watches hold, maybe with other objects in places where such are allowed.
  bool watches_hold();
  bool revalidate(PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames,
                  const Leaves& leaves);
  // Whether that which a watch says has changed is still what the program is for. Where it is not,
  // again and again, that is asked more and more seldom: it takes longer than a call.
  bool looks_again(PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames,
                   const Leaves& leaves);
  // Whether arguments are where they have to be and have what they may have, the condition says
  // yes, and what is read is what was read.
  bool last_checks_hold(PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames,
                        const Leaves& leaves);
  Py_ssize_t num_outputs() const;
  // Leaves the sizes of inputs with symbols to the rows.
  void free_sizes();
  // Sets the row; false when none answers the call.
  bool find_row(Leaves& leaves) {
    leaves.row = only_row_;
    if (only_row_ != nullptr) [[likely]]
      return true;
    return find_row_of_call(leaves);
  }
  bool find_row_of_call(Leaves& leaves);
  bool compute_open_numbers(Leaves& leaves) const;
  ProgramRow* find_other_row(const Leaves& leaves);

  GlobalState state_;
  ArgumentSpec arguments_;
  OpenNumbers numbers_;
  NumberResults results_;
  NumberStores stores_;
  bool makes_numbers_;
  size_t num_leaves_;
  std::shared_ptr<CompiledProgram> program_;
  ProgramRow* only_row_;  // null: the call tells
  std::vector<InputBinding> bindings_;
  OutputSpec output_;
  WatchList watches_;
  std::vector<PyObject*> known_;          // its containers, borrowed
  std::vector<PyObject*> known_objects_;  // of those of the arguments: itself if known, else null
  PyRef revalidate_;
  bool always_revalidate_;
  MutatedInputs mutated_;
  TensorIdentities identities_;
  StandIns stand_ins_;
  int num_refused_ = 0;
  int num_to_skip_ = 0;
  int num_skipped_ = 0;
  PyRef route_;
  RuntimeChoice runtime_;
  std::unique_ptr<ReusedOutputs> reused_;  // null: new outputs at every call
  RowGuard row_guard_;
  uint64_t last_row_ = 0;  // id of one that was accepted
  std::shared_ptr<BackwardPlan> backward_;
  bool any_arguments_;
  bool retries_;
  bool fails_early_;
  bool in_inference_mode_;
  bool updates_;
  PyRef condition_;
  std::vector<StaticLeaf> static_leaves_;
  LeafChecks leaf_checks_;
  std::unique_ptr<ReadCheck> reads_;  // null: nothing was read
  std::vector<InputBinding> aligned_;
  bool has_last_checks_;
  std::string reason_;
  // Some input needs a gradient: operators that the program calls must not notice.
  bool hides_gradients_;
  bool only_runs_;  // nothing is done around a call of the program
  bool donates_;
};

}  // namespace hostjit
