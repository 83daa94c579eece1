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

ProgramRow::ProgramRow(std::unique_ptr<ProgramState> state, const Program& program,
                       const std::map<std::string, Kernel>& kernels)
    : id_(next_id()),
      state_(std::move(state)),
      takes_long_(hostjit::takes_long(program, kernels)),
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
      arenas_(std::make_shared<ArenaPool>(program.arena().alignment)),
      maker_(program) {}

size_t ProgramRows::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return rows_.size();
}

std::optional<RowSizes> ProgramRows::last_sizes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (rows_.empty()) return std::nullopt;
  return rows_.front()->sizes();
}

std::shared_ptr<ProgramRow> ProgramRows::get(const RowSizes& sizes) {
  std::shared_ptr<ProgramRow> dropped;  // destroyed when the lock is released
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_sizes_.find(sizes);
  if (found != by_sizes_.end()) {
    rows_.splice(rows_.begin(), rows_, found->second);
    return rows_.front();
  }
  rows_.push_front(make(sizes));
  by_sizes_[sizes] = rows_.begin();
  if (rows_.size() > kMostRows) dropped = take_oldest();
  return rows_.front();
}

std::shared_ptr<ProgramRow> ProgramRows::make(const RowSizes& sizes) {
  RowContents contents = maker_.make(sizes);
  auto row = std::make_shared<ProgramRow>(
      std::make_unique<ProgramState>(state_, std::move(contents), arenas_), maker_.program(),
      program_.kernels());
  row->sizes_ = sizes;
  for (size_t i = 0; i < program_.inputs().size(); ++i) {
    const Value* input = program_.inputs()[i];
    if (!input->is_tensor() || input->tensor_type().is_static()) continue;
    row->shapes_.push_back({i, ExpectedTensor(maker_.program().inputs()[i]->tensor_type())});
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const RowSymbols::Source& source = symbols().sources()[i];
    if (source.dim != RowSymbols::Source::kItself) continue;
    row->numbers_.push_back({static_cast<size_t>(source.input), sizes[i]});
  }
  return row;
}

std::shared_ptr<ProgramRow> ProgramRows::take_oldest() {
  for (auto row = std::prev(rows_.end()); row != rows_.begin(); --row) {
    if ((*row)->num_calls_ > 0) continue;
    std::shared_ptr<ProgramRow> oldest = std::move(*row);
    by_sizes_.erase(oldest->sizes_);
    rows_.erase(row);
    return oldest;
  }
  return nullptr;
}

Program ProgramRows::program_of(const RowSizes& sizes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  maker_.make(sizes);
  return maker_.clone_program(program_);
}

}  // namespace hostjit
