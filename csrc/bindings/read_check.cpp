// SPDX-License-Identifier: Apache-2.0
#include "bindings/read_check.h"

#include <ATen/core/grad_mode.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <variant>

#include "bindings/compiled_program_bindings.h"
#include "bindings/program_call.h"
#include "support/check.h"

namespace py = pybind11;

namespace hostjit {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous();
}

bool has_bytes_of(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor plain = is_plain(found) ? found : found.cpu().contiguous();
  return plain.nbytes() == expected.nbytes() &&
         std::memcmp(plain.const_data_ptr(), expected.const_data_ptr(), plain.nbytes()) == 0;
}

// How a program returns a number.
uint64_t bits_of(const at::Scalar& number, const Type& type) {
  if (std::holds_alternative<F64Type>(type)) return std::bit_cast<uint64_t>(number.toDouble());
  return number.isBoolean() ? uint64_t{number.toBool()} : std::bit_cast<uint64_t>(number.toLong());
}

}  // namespace

ReadCheck::ReadCheck(PyObject* description, size_t num_leaves) {
  const auto parts = py::reinterpret_borrow<py::tuple>(description);
  program_ = parts[0].cast<std::shared_ptr<CompiledProgram>>();
  inputs_ = input_bindings_from_python(py::object(parts[1]).ptr(), num_leaves);
  const auto expected = parts[2].cast<std::vector<at::Tensor>>();
  runtime_ = runtime_from_python(parts[3].cast<std::optional<std::string>>());
  HOSTJIT_CHECK(program_->only_row() != nullptr, "specialization: reads have symbols");
  const std::vector<Value*>& results = program_->program().outputs();
  HOSTJIT_CHECK(
      program_->program().inputs().size() == inputs_.size() && results.size() >= expected.size(),
      "specialization: reads do not fit their program");
  HOSTJIT_CHECK(std::ranges::all_of(expected, is_plain),
                "specialization: values that were read are not in memory of the CPU as they come");
  num_expected_ = expected.size();
  for (size_t i = 0; i < num_expected_; ++i) {
    if (results[i]->is_tensor()) {
      expected_.push_back(expected[i]);
    } else {
      HOSTJIT_CHECK(expected[i].numel() == 1, "specialization: a read is no number");
      expected_numbers_.push_back(bits_of(expected[i].item(), results[i]->type()));
    }
  }
}

bool ReadCheck::holds(const Leaves& leaves) {
  std::vector<at::Tensor> found;
  ProgramCall::Numbers numbers;
  try {
    if (compute(leaves, found, numbers)) {
      if (!std::ranges::equal(numbers, expected_numbers_)) return false;
      const auto first = found.begin() + static_cast<std::ptrdiff_t>(expected_.size());
      if (!std::equal(found.begin(), first, expected_.begin(), has_bytes_of)) return false;
      leaves.handed_on.assign(std::move_iterator(first), std::move_iterator(found.end()));
      has_held_ = true;
      return true;
    }
    PyErr_Clear();
  } catch (const std::exception&) {
    PyErr_Clear();  // the call that runs raises it again, or handles it
  }
  return false;
}

const Type* ReadCheck::handed_on(size_t slot) const {
  const std::vector<Value*>& results = program_->program().outputs();
  const size_t place = num_expected_ + slot;
  return place < results.size() ? &results[place]->type() : nullptr;
}

bool ReadCheck::compute(const Leaves& leaves, std::vector<at::Tensor>& found,
                        ProgramCall::Numbers& numbers) {
  if (!std::ranges::all_of(inputs_, &InputBinding::holds)) return false;
  ProgramRow& row = *program_->only_row();
  // Without the GIL, another thread may take a tensor out of a list, or rebind a parameter.
  std::vector<at::Tensor> alive;
  if (row.takes_long()) {
    for (const InputBinding& input : inputs_) alive.push_back(input.tensor(leaves));
  }
  const at::NoGradGuard no_grad;
  ProgramCall call(*program_, row);
  for (size_t i = 0; i < inputs_.size(); ++i) call.set_tensor(i, inputs_[i], leaves);
  return call.run(program_->main(runtime_, row), found, numbers);
}

int ReadCheck::traverse(visitproc visit, void* arg) const {
  for (const InputBinding& input : inputs_) {
    if (const int status = input.traverse(visit, arg)) return status;
  }
  return 0;
}

}  // namespace hostjit
