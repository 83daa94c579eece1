// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/expected_tensor.h"
#include "codegen/row_maker.h"
#include "evaluator/evaluator.h"
#include "runtime/arena_pool.h"
#include "runtime/program_state.h"

namespace hostjit {

// Values of the input symbols of a program, in their order.
using RowSizes = std::vector<int64_t>;
struct HashRowSizes {
  size_t operator()(const RowSizes& sizes) const;
};

// What calls with the same values of input symbols share: frames, and what the evaluator runs. A
// program without symbols has one row. Used under the GIL, but for its state.
class ProgramRow {
 public:
  // What a row assumes of an input with symbols.
  struct InputShape {
    size_t input;
    ExpectedTensor tensor;
  };
  // The value of an index input that is a symbol.
  struct InputNumber {
    size_t input;
    int64_t value;
  };

  // How calls behave; `program` is the program of the row (call_length.h).
  ProgramRow(std::unique_ptr<ProgramState> state, const Program& program,
             const std::map<std::string, Kernel>& kernels);

  // Never that of another row.
  uint64_t id() const { return id_; }
  ProgramState& state() { return *state_; }
  const ProgramState& state() const { return *state_; }
  // Of the inputs; empty for a program without symbols.
  const RowSizes& sizes() const { return sizes_; }
  // Of the inputs with symbols, in their order.
  const std::vector<InputShape>& shapes() const { return shapes_; }
  bool takes_long() const { return takes_long_; }
  bool may_warn() const { return may_warn_; }
  // Neither: a call keeps the GIL and needs no more than its code.
  bool is_plain() const { return !takes_long_ && !may_warn_; }

  // What the evaluator runs for it. Before its first call by evaluator_main.
  void set_evaluator(std::unique_ptr<Evaluator> evaluator) {
    evaluator_ = std::move(evaluator);
    state_->set_evaluator(evaluator_.get());
  }

  // True when this row answers a call with these inputs: `inputs.tensor(i)` or `inputs.number(i)`
  // is the i-th of the program.
  template <class Inputs>
  bool fits(const Inputs& inputs) const {
    for (const InputShape& shape : shapes_) {
      if (!shape.tensor.has_shape_of(inputs.tensor(shape.input))) return false;
    }
    for (const InputNumber& number : numbers_) {
      if (inputs.number(number.input) != number.value) return false;
    }
    return true;
  }

  // A frame for one call; throws what its initialisation raised. The one kept here is as cheap to
  // take as a pointer is to read; the state's own pool is atomic.
  Frame* take_frame() {
    Frame* frame = idle_frame_;
    if (frame == nullptr) [[unlikely]]
      return take_another_frame();
    state_->enter(frame);
    idle_frame_ = nullptr;
    ++num_calls_;
    return frame;
  }
  void give_back(Frame* frame) noexcept {
    --num_calls_;
    if (idle_frame_ == nullptr) [[likely]] {
      if (FrameStorage::of(frame).is_unsettled()) [[unlikely]]
        ProgramState::settle(frame);
      idle_frame_ = frame;
    } else {
      state_->give_back(frame);
    }
  }

 private:
  friend class ProgramRows;

  Frame* take_another_frame();

  uint64_t id_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<ProgramState> state_;
  bool takes_long_;
  bool may_warn_;
  Frame* idle_frame_ = nullptr;
  int64_t num_calls_ = 0;  // under way
  RowSizes sizes_;
  std::vector<InputShape> shapes_;
  std::vector<InputNumber> numbers_;
};

// The rows of a program with symbols: one for each combination of their values that calls had, up
// to a number of them; then the one that was not used for longest goes. What needs the GIL says so.
class ProgramRows {
 public:
  static constexpr size_t kMostRows = 1024;

  // `state` is that of the program, which outlives this.
  ProgramRows(const Program& program, const ProgramState& state);

  const RowSymbols& symbols() const { return maker_.symbols(); }
  size_t size() const;

  // The row of the last call; null before the first. Under the GIL, as all its calls then are.
  ProgramRow* last() const { return rows_.empty() ? nullptr : rows_.front().get(); }
  // Its sizes; nullopt before the first call.
  std::optional<RowSizes> last_sizes() const;

  // What these inputs have for the input symbols; nullopt when an input has too few dims.
  template <class Inputs>
  std::optional<RowSizes> sizes_of(const Inputs& inputs) const {
    RowSizes sizes;
    sizes.reserve(symbols().num_inputs());
    for (const RowSymbols::Source& source : symbols().sources()) {
      const auto input = static_cast<size_t>(source.input);
      if (source.dim == RowSymbols::Source::kItself) {
        sizes.push_back(inputs.number(input));
        continue;
      }
      const at::IntArrayRef found = inputs.tensor(input).sizes();
      if (source.dim >= static_cast<int64_t>(found.size())) return std::nullopt;
      sizes.push_back(found[source.dim]);
    }
    return sizes;
  }

  // The row of these sizes, made if it is new, which becomes the last. Throws Error when the
  // program can't have them. The caller looks whether it fits. Who does not hold the GIL keeps the
  // pointer while the row is used.
  std::shared_ptr<ProgramRow> get(const RowSizes& sizes);

  // The program with the numbers of a row. Throws Error when the program can't have these sizes.
  Program program_of(const ProgramRow& row) { return program_of(row.sizes_); }
  Program program_of(const RowSizes& sizes);

 private:
  std::shared_ptr<ProgramRow> make(const RowSizes& sizes);
  // Null when calls of all are under way.
  std::shared_ptr<ProgramRow> take_oldest();

  const Program& program_;
  const ProgramState& state_;
  std::shared_ptr<ArenaPool> arenas_;
  mutable std::mutex mutex_;  // guards what follows
  RowMaker maker_;
  std::list<std::shared_ptr<ProgramRow>> rows_;  // the last used first
  std::unordered_map<RowSizes, std::list<std::shared_ptr<ProgramRow>>::iterator, HashRowSizes>
      by_sizes_;
};

}  // namespace hostjit
