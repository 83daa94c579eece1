// SPDX-License-Identifier: Apache-2.0
#include "bindings/program_rows.h"

#include <torch/csrc/Exceptions.h>

#include <iterator>

#include "bindings/call_length.h"

namespace hostjit {
namespace {

uint64_t next_id() {
  static uint64_t id = 0;
  return ++id;
}

}  // namespace

size_t HashRowSizes::operator()(const RowSizes& sizes) const {
  uint64_t hash = sizes.size();
  for (const int64_t size : sizes) {
    hash = (hash ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

ProgramRow::ProgramRow(std::unique_ptr<ProgramState> state, const Program& program)
    : id_(next_id()),
      state_(std::move(state)),
      takes_long_(hostjit::takes_long(program)),
      may_warn_(hostjit::may_warn(program)) {}

Frame* ProgramRow::take_another_frame() {
  std::optional<torch::PyWarningHandler> warnings;  // of the initialisation of a new frame
  if (may_warn_) warnings.emplace();
  Frame* frame = state_->take();
  ++num_calls_;
  return frame;
}

ProgramRows::ProgramRows(const Program& program, const ProgramState& state)
    : program_(program),
      state_(state),
      maker_(program),
      arenas_(std::make_shared<ArenaPool>(program.arena().alignment)) {}

ProgramRow& ProgramRows::get(const RowSizes& sizes) {
  const auto found = by_sizes_.find(sizes);
  if (found != by_sizes_.end()) {
    rows_.splice(rows_.begin(), rows_, found->second);
    return *rows_.front();
  }
  rows_.push_front(make(sizes));
  by_sizes_[sizes] = rows_.begin();
  if (rows_.size() > kMostRows) drop_oldest();
  return *rows_.front();
}

std::unique_ptr<ProgramRow> ProgramRows::make(const RowSizes& sizes) {
  RowContents contents = maker_.make(sizes);
  auto row = std::make_unique<ProgramRow>(
      std::make_unique<ProgramState>(state_, std::move(contents), arenas_), maker_.program());
  row->sizes_ = sizes;
  for (size_t i = 0; i < program_.inputs().size(); ++i) {
    const Value* input = program_.inputs()[i];
    if (!input->is_tensor() || input->tensor_type().is_static()) continue;
    const TensorType& type = maker_.program().inputs()[i]->tensor_type();
    row->shapes_.push_back({i, type.sizes(), type.static_strides()});
  }
  return row;
}

void ProgramRows::drop_oldest() {
  for (auto row = std::prev(rows_.end()); row != rows_.begin(); --row) {
    if ((*row)->num_calls_ > 0) continue;
    by_sizes_.erase((*row)->sizes_);
    rows_.erase(row);
    return;
  }
}

Program ProgramRows::program_of(const RowSizes& sizes) {
  maker_.make(sizes);
  return maker_.clone_program(program_);
}

}  // namespace hostjit
