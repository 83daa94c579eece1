// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "evaluator/evaluator.h"
#include "ir/parser.h"
#include "runtime/program_state.h"

namespace hostjit {

// Owns what an output holds.
inline at::Tensor take_tensor(void* output) {
  return at::Tensor(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim(
      static_cast<at::TensorImpl*>(output)));
}

// An evaluated program and the frames that its calls need.
class Evaluated {
 public:
  explicit Evaluated(const std::string& text, std::map<std::string, PackedKernel> kernels = {})
      : program_(parse_program(text)),
        evaluator_(program_, std::move(kernels)),
        state_(layout_of(program_), nullptr, &evaluator_) {}

  // Calls with tensors and integers in the order of the inputs. Outputs as raw words.
  std::vector<void*> raw_call(std::vector<at::Tensor> tensors, std::vector<int64_t> scalars = {}) {
    Frame* frame = state_.take();
    std::vector<TensorArg> arguments;
    for (at::Tensor& tensor : tensors) {
      arguments.push_back(
          {tensor.data_ptr(), tensor.sizes().data(), tensor.strides().data(), &tensor});
    }
    std::vector<void*> inputs = {frame};
    for (TensorArg& argument : arguments) inputs.push_back(&argument);
    for (int64_t& scalar : scalars) inputs.push_back(&scalar);
    std::vector<void*> outputs(program_.outputs().size());
    if (evaluator_main(0, inputs.data() + 1, outputs.data()) != 0) {
      for (void* output : outputs) EXPECT_EQ(output, nullptr);
      note_ = ProgramState::node_note(frame);
      try {
        ProgramState::rethrow(frame);
      } catch (...) {
        state_.give_back(frame);
        throw;
      }
    }
    state_.give_back(frame);
    return outputs;
  }

  at::Tensor call(std::vector<at::Tensor> tensors) {
    return take_tensor(raw_call(std::move(tensors)).at(0));
  }

  std::string error(std::vector<at::Tensor> tensors, std::vector<int64_t> scalars = {}) {
    try {
      raw_call(std::move(tensors), std::move(scalars));
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }
  const std::string& note() const { return note_; }

 private:
  static FrameLayout layout_of(const Program& program) {
    FrameLayout layout;
    for (const Region* region : {&program.init(), &program.body()}) {
      for (const auto& op : *region) {
        layout.nodes.push_back({std::string(op->name()), op->location});
      }
    }
    return layout;
  }

  Program program_;
  Evaluator evaluator_;
  ProgramState state_;
  std::string note_;
};

}  // namespace hostjit
