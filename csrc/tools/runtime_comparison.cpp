// SPDX-License-Identifier: Apache-2.0
#include "tools/runtime_comparison.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "ir/verifier.h"
#include "runtime/torch_types.h"
#include "support/check.h"

namespace hostjit {

namespace {

at::Tensor wrap(const Type& type, void* word) {
  if (std::holds_alternative<TensorType>(type)) {
    return at::Tensor(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim(
        static_cast<at::TensorImpl*>(word)));
  }
  if (std::holds_alternative<F64Type>(type)) {
    return at::scalar_tensor(std::bit_cast<double>(word), at::kDouble);
  }
  return at::scalar_tensor(std::bit_cast<int64_t>(word), at::kLong);
}

std::vector<at::Tensor> clone_all(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> clones;
  for (const at::Tensor& tensor : tensors) {
    // The memory behind strides, gaps included.
    const at::Tensor memory = tensor.storage().nbytes() == 0
                                  ? tensor
                                  : at::empty({0}, tensor.options()).set_(tensor.storage()).clone();
    clones.push_back(memory.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset()));
  }
  return clones;
}

// Empty when `found` equals `expected` up to rounding, or what differs.
std::string difference(const std::string& name, const at::Tensor& found,
                       const at::Tensor& expected) {
  if (found.sizes() != expected.sizes() || found.strides() != expected.strides() ||
      found.scalar_type() != expected.scalar_type()) {
    return concat(name, ": the JIT's is ", c10::toString(found.scalar_type()), found.sizes(),
                  " with strides ", found.strides(), ", the evaluator's ",
                  c10::toString(expected.scalar_type()), expected.sizes(), " with strides ",
                  expected.strides(), "\n");
  }
  const bool is_inexact = expected.is_floating_point() || expected.is_complex();
  const auto widened = [&](const at::Tensor& tensor) {
    return is_inexact ? tensor.to(expected.is_complex() ? at::kComplexDouble : at::kDouble)
                      : tensor;
  };
  const double tolerance = !is_inexact                                                      ? 0.0
                           : at::elementSize(at::toRealValueType(found.scalar_type())) >= 8 ? 1e-7
                           : at::elementSize(at::toRealValueType(found.scalar_type())) >= 4
                               ? 1e-5
                               : 1.6e-2;
  // A sum is rounded relative to its terms, which the largest elements tell of.
  double scale = 1.0;
  if (is_inexact && expected.numel() != 0) {
    const at::Tensor sizes = at::nan_to_num(widened(expected).abs(), 0.0, 0.0, 0.0);
    scale = std::max(scale, sizes.max().item<double>());
  }
  const at::Tensor a = widened(found);
  const at::Tensor b = widened(expected);
  if (at::allclose(a, b, tolerance, tolerance * scale, /*equal_nan=*/true)) return "";
  const at::Tensor apart = at::isclose(a, b, tolerance, tolerance * scale, /*equal_nan=*/true);
  const at::Tensor first = apart.logical_not().flatten().nonzero()[0][0];
  return concat(name, ": ", apart.logical_not().sum().item<int64_t>(), " of ", found.numel(),
                " elements differ; element ", first.item<int64_t>(), ": the JIT's is ",
                a.flatten()[first].item(), ", the evaluator's ", b.flatten()[first].item(), "\n");
}

}  // namespace

RunnableProgram::RunnableProgram(const Program& program)
    : program_(program.clone()),
      module_(CompiledModule::compile(program_)),
      state_(module_->layout(), module_->init()),
      row_program_(program_.clone()) {
  if (program_.is_symbolic()) {
    maker_.emplace(program_);
    arenas_ = std::make_shared<ArenaPool>(program_.arena().alignment);
  } else {
    make_evaluator(state_);
  }
}

void RunnableProgram::use_row(const std::vector<int64_t>& sizes) {
  RowContents contents = maker_->make(sizes);
  row_program_ = maker_->clone_program(program_);
  verify_program(row_program_);
  sizes_ = sizes;
  row_ = std::make_unique<ProgramState>(state_, std::move(contents), arenas_);
  make_evaluator(*row_);
}

void RunnableProgram::make_evaluator(ProgramState& state) {
  evaluator_ = std::make_unique<Evaluator>(row_program_, module_->packed_kernels());
  state.set_evaluator(evaluator_.get());
}

RunnableProgram::Result RunnableProgram::run(MainFunction main, std::vector<at::Tensor> inputs) {
  ProgramState& state = row_ ? *row_ : state_;
  const c10::NoGradGuard no_grad;
  Result result;
  std::vector<TensorArg> tensors(inputs.size());
  std::vector<int64_t> scalars(inputs.size());
  Frame* frame = nullptr;
  try {
    frame = state.take();
    std::vector<void*> arguments = {frame};
    for (size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor& tensor = inputs[i];
      tensors[i] = {tensor.data_ptr(), tensor.sizes().data(), tensor.strides().data(), &tensor};
      const Value* input = program_.inputs()[i];
      const bool is_stream = std::holds_alternative<StreamType>(input->type());
      if (!input->is_tensor() && !is_stream) {
        scalars[i] = std::holds_alternative<F64Type>(input->type())
                         ? std::bit_cast<int64_t>(tensor.item<double>())
                         : tensor.item<int64_t>();
      }
      arguments.push_back(input->is_tensor() ? static_cast<void*>(&tensors[i])
                          : is_stream        ? tensor.data_ptr()
                                             : &scalars[i]);
    }
    std::vector<void*> outputs(program_.outputs().size());
    if (main(/*cache_id=*/0, arguments.data() + 1, outputs.data()) != 0) {
      result.error = ProgramState::node_note(frame);
      ProgramState::rethrow(frame);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      result.outputs.push_back(wrap(program_.outputs()[i]->type(), outputs[i]));
    }
  } catch (const c10::Error& error) {
    result.error = concat(error.what_without_backtrace(), " [", result.error, "]");
  } catch (const std::exception& error) {
    result.error = concat(error.what(), " [", result.error, "]");
  }
  if (frame != nullptr) state.give_back(frame);
  return result;
}

std::vector<at::Tensor> random_inputs(const Program& program, uint64_t seed) {
  at::manual_seed(seed);
  std::vector<at::Tensor> inputs;
  for (const Value* input : program.inputs()) {
    if (std::holds_alternative<F64Type>(input->type())) {
      inputs.push_back(at::randn({}, at::kDouble));
    } else if (std::holds_alternative<BoolType>(input->type())) {
      inputs.push_back(at::randint(0, 2, {}, at::kBool));
    } else if (!input->is_tensor()) {
      inputs.push_back(at::randint(1, 9, {}, at::kLong));
    } else {
      const TensorType& type = input->tensor_type();
      const at::ScalarType dtype = to_torch(type.dtype);
      const int64_t count =
          std::max<int64_t>(1, type.extent_in_bytes() / size_in_bytes(type.dtype));
      const at::Tensor memory =
          is_floating_point(type.dtype) || is_complex(type.dtype)
              ? at::randn({count}).to(dtype)
              : at::randint(0, type.dtype == DType::kBool ? 2 : 9, {count}, at::kLong).to(dtype);
      inputs.push_back(memory.as_strided(type.sizes(), type.static_strides()));
    }
  }
  return inputs;
}

std::vector<at::Tensor> RunnableProgram::random_inputs(uint64_t seed) const {
  std::vector<at::Tensor> inputs = hostjit::random_inputs(row_program_, seed);
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const RowSymbols::Source& source = maker_->symbols().sources()[i];
    if (source.dim == RowSymbols::Source::kItself) inputs[source.input].fill_(sizes_[i]);
  }
  return inputs;
}

std::string compare_runtimes(RunnableProgram& program, uint64_t seed, int num_calls) {
  std::string differences;
  for (int call = 0; call < num_calls; ++call) {
    const std::vector<at::Tensor> inputs = program.random_inputs(seed + call);
    const std::vector<at::Tensor> for_jit = clone_all(inputs);
    const std::vector<at::Tensor> for_evaluator = clone_all(inputs);
    const RunnableProgram::Result found = program.run_jit(for_jit);
    const RunnableProgram::Result expected = program.run_evaluator(for_evaluator);
    if (found.error != expected.error) {
      differences += concat("error: the JIT's is '", found.error, "', the evaluator's '",
                            expected.error, "'\n");
      continue;
    }
    for (size_t i = 0; i < found.outputs.size(); ++i) {
      differences += difference(concat("output ", i), found.outputs[i], expected.outputs[i]);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      differences += difference(concat("input ", i, " afterwards"), for_jit[i], for_evaluator[i]);
    }
  }
  return differences;
}

std::string compare_rows(RunnableProgram& program, uint64_t seed,
                         std::vector<std::vector<int64_t>> rows) {
  const size_t num_symbols = program.symbols().size();
  if (num_symbols == 0) return compare_runtimes(program, seed);
  if (rows.empty()) {
    constexpr int64_t kSizes[] = {5, 2, 33, 1, 0, 8, 3, 70};
    for (size_t first = 0; first < std::size(kSizes); ++first) {
      std::vector<int64_t>& row = rows.emplace_back();
      for (size_t i = 0; i < num_symbols; ++i) {
        row.push_back(kSizes[(first + i * 3) % std::size(kSizes)]);
      }
    }
    rows.push_back(rows.front());
  }
  std::string differences;
  for (const std::vector<int64_t>& row : rows) {
    program.use_row(row);
    const std::string found = compare_runtimes(program, seed);
    if (!found.empty()) differences += concat("sizes ", to_string(row), ": ", found);
  }
  return differences;
}

}  // namespace hostjit
