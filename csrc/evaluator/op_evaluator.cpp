// SPDX-License-Identifier: Apache-2.0
#include "evaluator/op_evaluator.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <array>
#include <optional>

#include "evaluator/device_launch.h"
#include "evaluator/launch_parameters.h"
#include "ir/effects.h"
#include "ir/visitor.h"
#include "runtime/cuda_device.h"
#include "runtime/externs.h"
#include "runtime/frame_storage.h"
#include "runtime/kernel_error.h"
#include "runtime/literal_to_ivalue.h"
#include "runtime/tensor_header.h"
#include "runtime/torch_types.h"

namespace hostjit {
namespace {

at::Tensor new_tensor(const TensorType& type) {
  if (type.device.type == DeviceType::kCUDA && type.device.index == cuda::current_device()) {
    const TensorSpec spec{type.dtype, type.device, type.sizes(), type.static_strides()};
    return new_cuda_tensor(spec, extent_in_bytes(spec));
  }
  return at::empty_strided(
      type.sizes(), type.static_strides(),
      at::TensorOptions().dtype(to_torch(type.dtype)).device(to_torch(type.device)));
}

// As in compiled code, what gradients are wanted of is detached.
at::Tensor view_of(const at::Tensor& source, const TensorType& type, int64_t offset) {
  return hostjit::view_of(source, to_torch(type.dtype), type.sizes(), type.static_strides(), offset,
                          /*is_hidden=*/source.requires_grad());
}

at::Scalar scalar(const Literal& literal) {
  return to_ivalue(literal, *c10::NumberType::get()).toScalar();
}

// Fills `out` from row-major literals by way of T, which holds each of them exactly.
template <class T>
void fill_by(at::Tensor& out, const std::vector<Literal>& values) {
  at::Tensor wide = at::empty(out.sizes(), c10::CppTypeToScalarType<T>::value);
  T* element = wide.mutable_data_ptr<T>();
  for (const Literal& value : values) *element++ = scalar(value).to<T>();
  out.copy_(wide);
}

// As compiled code does: the memory may be a user's, whose version counts writes.
void announce_write(const at::Tensor& written) { written.unsafeGetTensorImpl()->bump_version(); }

}  // namespace

void OpEvaluator::run(const Region& region, int64_t first_node) {
  frame_->node = first_node;
  for (const auto& op : region) {
    visit_op(*op, [&](const auto& payload) { evaluate(payload); });
    ++frame_->node;
  }
}

void OpEvaluator::run_nested(const Region& region, int64_t first_node) {
  DeviceStreams& streams = FrameStorage::of(frame_).device_streams;
  const int64_t outside = streams.current();
  run(region, first_node);
  streams.set(*frame_, outside);
  if (uses_streams()) streams.join(*frame_);
}

at::Tensor OpEvaluator::empty(const TensorType& type) const {
  at::Tensor made = new_tensor(type);
  FrameStorage::of(frame_).device_streams.note_made(made);
  return made;
}

int64_t OpEvaluator::stream_number(const Value* stream) {
  return stream ? values_.index(stream) : FrameStorage::of(frame_).device_streams.current();
}

void OpEvaluator::evaluate(const Allocate& op) {
  const TensorType& type = op.result->tensor_type();
  KeptTensors* kept = FrameStorage::of(frame_).kept;
  if (kept == nullptr || op.offset >= 0) {
    values_.set(op.result, empty(type));
    return;
  }
  const int64_t key = -1 - frame_->node;  // no slot of compiled code
  at::Tensor tensor = kept->take(key);
  if (!tensor.defined()) tensor = empty(type);
  kept->keep(key, tensor);
  values_.set(op.result, std::move(tensor));
}

// What streams may still use goes when the call is over.
void OpEvaluator::evaluate(const Deallocate& op) {
  if (uses_streams()) return;
  values_.drop(op.buffer);
  if (op.buffer->producer() == nullptr) hostjit_release_input(frame_, values_.number(op.buffer));
}

void OpEvaluator::evaluate(const Copy& op) {
  std::optional<at::AutoDispatchBelowADInplaceOrView> hidden;
  if (op.hidden_from_autograd) hidden.emplace();
  tensor(op.out).copy_(tensor(op.source));
}

void OpEvaluator::evaluate(const Fill& op) { tensor(op.out).fill_(scalar(op.value)); }

void OpEvaluator::evaluate(const Constant& op) {
  const TensorType& type = op.result->tensor_type();
  at::Tensor result = empty(type);
  if (is_complex(type.dtype)) {
    fill_by<c10::complex<double>>(result, op.values);
  } else if (is_floating_point(type.dtype)) {
    fill_by<double>(result, op.values);
  } else {
    fill_by<int64_t>(result, op.values);
  }
  values_.set(op.result, std::move(result));
}

void OpEvaluator::evaluate(const Item& op) {
  const at::Scalar number = tensor(op.source).item();
  if (std::holds_alternative<F64Type>(op.result->type())) {
    values_.set(op.result, number.toDouble());
  } else {
    values_.set(op.result, number.toLong());
  }
}

void OpEvaluator::evaluate(const View& op) {
  values_.set(op.result, view_of(tensor(op.source), op.result->tensor_type(), op.offset.value));
}

void OpEvaluator::evaluate(const Select& op) {
  const at::Tensor& source = tensor(op.source);
  const int64_t index = values_.index(op.index);
  HOSTJIT_CHECK(index >= 0 && index < source.size(0), Select::kOutOfRange);
  const int64_t stride = op.source->tensor_type().strides[0].value;
  values_.set(op.result, view_of(source, op.result->tensor_type(), index * stride));
}

void OpEvaluator::evaluate(const Size& op) {
  values_.set(op.result, tensor(op.source).size(op.dim));
}

void OpEvaluator::evaluate(const IndexConstant& op) { values_.set(op.result, op.value); }

void OpEvaluator::evaluate(const FloatConstant& op) { values_.set(op.result, op.value); }

void OpEvaluator::evaluate(const IndexBinary& op) {
  values_.set(op.result, apply(op.operation, values_.index(op.lhs), values_.index(op.rhs)));
}

void OpEvaluator::evaluate(const LaunchKernel& op) {
  for (const Value* operand : op.in_out) announce_write(tensor(operand));
  for (const Value* operand : op.outputs) announce_write(tensor(operand));
  const Kernel& kernel = kernel_texts_.at(op.kernel);
  if (is_cuda(kernel.language)) {
    void* stream = op.stream ? frame_->streams[values_.index(op.stream)] : frame_->stream;
    return launch_on_device(frame_, op, kernel, stream, values_);
  }
  std::vector<void*> arguments;
  std::vector<uint64_t> bits;
  if (has_signature(kernel)) {
    bits = parameter_bits(op, kernel, values_);
    for (size_t i = 0; i < bits.size(); ++i) {
      const bool is_pointer = kernel.parameters[i] == ParameterType::kPointer;
      arguments.push_back(is_pointer ? reinterpret_cast<void*>(bits[i]) : &bits[i]);
    }
  } else {
    for (const Value* operand : op.all_operands()) {
      arguments.push_back(operand->is_tensor()
                              ? tensor(operand).unsafeGetTensorImpl()->mutable_data()
                              : values_.address(operand));
    }
  }
  std::array<int64_t, 2> failure{};
  if (!op.errors.empty()) arguments.push_back(failure.data());
  int64_t begin = 0;
  int64_t end = op.grid.empty() ? 0 : op.grid[0].value;
  if (!op.grid.empty() && end == 0) return;
  if (!op.grid.empty()) arguments.insert(arguments.end(), {&begin, &end});
  kernels_.at(op.kernel)(arguments.data());
  if (failure[0] != 0) throw_kernel_error(op.errors.at(failure[0] - 1), failure[1]);
}

void OpEvaluator::evaluate(const Matmul& op) {
  at::mm_out(tensor(op.out), tensor(op.lhs), tensor(op.rhs));
}

void OpEvaluator::evaluate(const Linear& op) {
  // linear_out would resize the output of a vector to one row.
  tensor(op.out).copy_(at::linear(tensor(op.input), tensor(op.weight),
                                  op.bias ? std::optional(tensor(op.bias)) : std::nullopt));
}

void OpEvaluator::evaluate(const Bmm& op) {
  at::bmm_out(tensor(op.out), tensor(op.lhs), tensor(op.rhs));
}

void OpEvaluator::evaluate(const Addmm& op) {
  at::Tensor out = tensor(op.out);
  at::addmm_out(out, tensor(op.bias), tensor(op.lhs), tensor(op.rhs),
                to_torch(op.beta, out.scalar_type()), to_torch(op.alpha, out.scalar_type()));
}

void OpEvaluator::evaluate(const Baddbmm& op) {
  at::Tensor out = tensor(op.out);
  at::baddbmm_out(out, tensor(op.bias), tensor(op.lhs), tensor(op.rhs),
                  to_torch(op.beta, out.scalar_type()), to_torch(op.alpha, out.scalar_type()));
}

void OpEvaluator::evaluate(const AtenCall& op) {
  aten_calls_.call(op, FrameStorage::of(frame_).device_streams, values_);
}

void OpEvaluator::evaluate(const For& op) {
  const int64_t node = frame_->node;
  int64_t index = values_.index(op.begin);
  for (uint64_t left = op.num_iterations(index, values_.index(op.end)); left > 0; --left) {
    values_.set(op.index, index);
    run_nested(*op.body, node + 1);
    index += left > 1 ? op.step : 0;
  }
  frame_->node = node + num_nodes(*op.body);
}

void OpEvaluator::evaluate(const While& op) {
  const int64_t node = frame_->node;
  while (tensor(op.condition).item<bool>()) {
    run_nested(*op.body, node + 1);
    frame_->node = node;
  }
  frame_->node = node + num_nodes(*op.body);
}

void OpEvaluator::evaluate(const If& op) {
  const int64_t node = frame_->node;
  const int64_t first_of_else = node + 1 + num_nodes(*op.then);
  if (tensor(op.condition).item<bool>()) {
    run_nested(*op.then, node + 1);
  } else {
    run_nested(*op.otherwise, first_of_else);
  }
  frame_->node = first_of_else - 1 + num_nodes(*op.otherwise);
}

void OpEvaluator::evaluate(const CurrentStream& op) {
  values_.set(op.result, stream_number(nullptr));
}

void OpEvaluator::evaluate(const PoolStream& op) {
  const int64_t number = stream_numbers_.of(op.result);
  FrameStorage::of(frame_).device_streams.fork(*frame_, number);
  values_.set(op.result, number);
}

void OpEvaluator::evaluate(const SetStream& op) {
  FrameStorage::of(frame_).device_streams.set(*frame_, stream_number(op.stream));
}

void OpEvaluator::evaluate(const RecordEvent& op) {
  const int64_t event = stream_numbers_.of(op.result);
  FrameStorage::of(frame_).device_streams.record(*frame_, event, stream_number(op.stream));
  values_.set(op.result, event);
}

void OpEvaluator::evaluate(const WaitEvent& op) {
  FrameStorage::of(frame_).device_streams.wait(*frame_, values_.index(op.event),
                                               stream_number(op.stream));
}

void OpEvaluator::evaluate(const Synchronize& op) {
  FrameStorage::of(frame_).device_streams.synchronize(*frame_, stream_number(op.stream));
}

void OpEvaluator::evaluate(const RangePush& op) {
  if (hostjit_profiling_enabled(frame_)) hostjit_range_push(frame_, op.label.c_str());
}

void OpEvaluator::evaluate(const RangePop&) {
  if (hostjit_profiling_enabled(frame_)) hostjit_range_pop(frame_);
}

}  // namespace hostjit
