// SPDX-License-Identifier: Apache-2.0
#include "passes/random_program.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/verifier.h"
#include "passes/insert_deallocations.h"

namespace hostjit {
namespace {

struct Tensor {
  Value* value;
  bool is_writable;
  bool is_constant;  // may be memory of a Constant, which is no output
};

class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed)
      : random_(seed), program_(concat("random", seed)), builder_{Builder(program_)} {}

  Program make(int num_steps) {
    program_.add_kernel({"k", "define void @k()"});
    program_.add_kernel({"unused", "define void @unused()"});
    for (int i = 0; i < 3; ++i) {
      tensors_.push_back({program_.add_input(random_type(), concat("x", i)), true, false});
    }
    flag_ = program_.add_input(TensorType::make(DType::kBool, {}), "flag");
    tensors_.push_back({flag_, true, false});
    for (int i = 0; i < num_steps; ++i) add_step();
    while (open_ranges_ > 0) close_range();
    std::vector<Value*> outputs;
    for (int i = 0; i < 3; ++i) {
      const Tensor& tensor = any_tensor();
      if (!tensor.is_constant) outputs.push_back(tensor.value);
    }
    program_.set_outputs(outputs);
    verify_program(program_);
    return std::move(program_);
  }

 private:
  int64_t below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random_); }

  const Tensor& any_tensor() {
    // Recent ones more often, so that lives end.
    const auto count = static_cast<int64_t>(tensors_.size());
    return tensors_[std::max(below(count), std::max(below(count), below(count)))];
  }

  TensorType random_type() {
    const DType dtype = below(2) ? DType::kF32 : DType::kI64;
    switch (below(6)) {
      case 0: return TensorType::make(dtype, {});
      case 1: return TensorType::make(dtype, {0, 3});
      case 2: return TensorType::make(dtype, {4, 8}, std::vector<Dim>{1, 4});
      case 3: return TensorType::make(dtype, {below(50) + 1});
      default: return TensorType::make(dtype, {below(6) + 1, below(9) + 1});
    }
  }

  template <class Payload>
  void emit(Payload payload) {
    builder_.back().set_location(concat("op", num_ops_++));
    builder_.back().create(std::move(payload));
  }

  void launch(std::vector<Value*> inputs, std::vector<Value*> in_out, std::vector<Value*> outputs) {
    LaunchKernel op;
    op.kernel = "k";
    op.inputs = std::move(inputs);
    op.in_out = std::move(in_out);
    op.outputs = std::move(outputs);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const DType dtype = op.inputs[i]->tensor_type().dtype;
      if (op.outputs.empty() || op.outputs[0]->tensor_type().dtype != dtype) continue;
      op.in_place.insert(op.in_place.end(), {static_cast<int64_t>(i), 0});
    }
    emit(std::move(op));
  }

  Value* add(TensorType type) { return program_.add_value(std::move(type)); }

  // Up to two tensors other than `excluded`.
  std::vector<Value*> some_inputs(const Value* excluded) {
    std::vector<Value*> inputs;
    for (int64_t i = below(3); i > 0; --i) {
      Value* value = any_tensor().value;
      if (value != excluded) inputs.push_back(value);
    }
    return inputs;
  }

  void add_step() {
    switch (below(19)) {
      case 0:
      case 1:
      case 2: return allocate_and(/*use_inputs=*/true);
      case 3:
      case 4: return allocate_and(/*use_inputs=*/false);
      case 5:
      case 6:
      case 7: return add_view();
      case 8: return add_constant();
      case 9: return add_aten_call();
      case 10: return add_aten_alias();
      case 11: return update();
      case 12: return fill_some();
      case 13:
      case 14: return add_chain();
      case 15: return open_ranges_ > 0 && below(2) ? close_range() : open_range();
      case 16:
      case 17: return add_regions();
      case 18: return add_select();
    }
  }

  void allocate_and(bool use_inputs) {
    Value* out = add(random_type());
    emit(Allocate{.result = out});
    if (use_inputs || below(2)) {
      std::vector<Value*> inputs;
      if (use_inputs) inputs = some_inputs(out);
      launch(std::move(inputs), {}, {out});
    } else {
      emit(Fill{.value = {below(9)}, .out = out});
    }
    tensors_.push_back({out, true, false});
  }

  // Launches that each read what the one before wrote, which nobody reads again as a rule.
  void add_chain() {
    const TensorType type = random_type();
    Value* last = nullptr;
    for (int64_t i = below(3) + 2; i > 0; --i) {
      Value* out = add(type);
      emit(Allocate{.result = out});
      launch(last ? std::vector<Value*>{last} : some_inputs(out), {}, {out});
      if (i == 1 || below(4) == 0) tensors_.push_back({out, true, false});
      last = out;
    }
  }

  void add_view() {
    const Tensor source = any_tensor();
    const TensorType& type = source.value->tensor_type();
    TensorType shape = type;
    int64_t offset = 0;
    bool is_writable = source.is_writable;
    if (type.num_elements() > 0 && type.rank() > 0) {
      const int64_t size = type.dims[0].value;
      switch (below(4)) {
        case 0: break;
        case 1:  // slice
          offset = below(size) * type.strides[0].value;
          shape.dims[0] = size - offset / std::max<int64_t>(type.strides[0].value, 1);
          break;
        case 2:  // transpose
          std::ranges::reverse(shape.dims);
          std::ranges::reverse(shape.strides);
          break;
        case 3:  // expand
          shape.dims.insert(shape.dims.begin(), Dim(2));
          shape.strides.insert(shape.strides.begin(), Dim(0));
          is_writable = false;
          break;
      }
      if (shape.dims[0].value < 1 || type.strides[0].value == 0) return;
    }
    Value* result = add(shape);
    emit(View{.source = source.value, .offset = offset, .result = result});
    tensors_.push_back({result, is_writable, source.is_constant});
  }

  // By the index of a loop around it, if that stays in the tensor.
  void add_select() {
    if (indices_.empty()) return;
    const auto& [index, end] = indices_[below(static_cast<int64_t>(indices_.size()))];
    const Tensor source = any_tensor();
    const TensorType& type = source.value->tensor_type();
    if (type.rank() == 0 || type.dims[0].value < end) return;
    TensorType shape = type;
    shape.dims.erase(shape.dims.begin());
    shape.strides.erase(shape.strides.begin());
    Value* result = add(shape);
    emit(Select{.source = source.value, .index = index, .result = result});
    tensors_.push_back({result, source.is_writable, source.is_constant});
  }

  void add_constant() {
    Value* result = add(TensorType::make(DType::kI64, {2}));
    emit(Constant{.values = {{below(5)}, {below(5)}}, .result = result});
    tensors_.push_back({result, false, true});
  }

  void add_aten_call() {
    Value* result = add(random_type());
    AtenCall call;
    call.target = "test::new";
    call.results = {result};
    if (below(2)) call.inputs = some_inputs(nullptr);
    const Tensor mutated = any_tensor();
    if (below(3) == 0 && mutated.is_writable) {
      std::erase(call.inputs, mutated.value);
      call.mutated = {mutated.value};
    }
    call.pure = below(3) > 0;
    emit(std::move(call));
    tensors_.push_back({result, true, false});
  }

  void add_aten_alias() {
    const Tensor source = any_tensor();
    Value* result = add(source.value->tensor_type());
    AtenCall call;
    call.target = "test::alias";
    call.aliases = {0};
    call.results = {result};
    (source.is_writable && below(3) == 0 ? call.mutated : call.inputs) = {source.value};
    emit(std::move(call));
    tensors_.push_back({result, source.is_writable, source.is_constant});
  }

  void update() {
    const Tensor target = any_tensor();
    if (!target.is_writable) return;
    launch(some_inputs(target.value), {target.value}, {});
  }

  void fill_some() {
    const Tensor target = any_tensor();
    if (target.is_writable) emit(Fill{.value = literal_for(target.value), .out = target.value});
  }

  void add_regions() {
    if (builder_.size() > 3) return;
    switch (below(3)) {
      case 0: {
        Value* begin = builder_.back().index_constant(0);
        const int64_t last = below(4);
        Value* end = builder_.back().index_constant(last);
        For loop{.begin = begin, .end = end, .index = program_.add_value(IndexType{})};
        emit(loop);
        indices_.emplace_back(loop.index, last);
        fill_region(*loop.body);
        indices_.pop_back();
        return;
      }
      case 1: {
        While loop{.condition = flag_};
        emit(loop);
        return fill_region(*loop.body);
      }
      case 2: {
        If branch{.condition = flag_};
        emit(branch);
        fill_region(*branch.then);
        return fill_region(*branch.otherwise);
      }
    }
  }

  void fill_region(Region& region) {
    const size_t num_outside = tensors_.size();
    const int open_outside = std::exchange(open_ranges_, 0);
    builder_.emplace_back(program_, region);
    for (int64_t i = below(6); i > 0; --i) add_step();
    while (open_ranges_ > 0) close_range();
    builder_.pop_back();
    open_ranges_ = open_outside;
    tensors_.resize(num_outside);
  }

  Literal literal_for(const Value* value) {
    if (value->tensor_type().dtype == DType::kBool) return {below(2) == 1};
    return {below(9)};
  }

  void open_range() {
    emit(RangePush{.label = "range"});
    ++open_ranges_;
  }

  void close_range() {
    emit(RangePop{});
    --open_ranges_;
  }

  std::mt19937 random_;
  Program program_;
  Value* flag_ = nullptr;
  std::vector<Builder> builder_;  // of the regions around what is added
  std::vector<Tensor> tensors_;
  std::vector<std::pair<Value*, int64_t>> indices_;  // of the loops around, and their ends
  int num_ops_ = 0;
  int open_ranges_ = 0;
};

}  // namespace

Program random_program(uint32_t seed, int num_steps) {
  Program program = RandomProgram(seed).make(num_steps);
  std::mt19937 random(seed);
  std::vector<size_t> donated;
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    if (random() % 3 == 0) donated.push_back(i);
  }
  donate_inputs(program, donated);
  return program;
}

}  // namespace hostjit
