// SPDX-License-Identifier: Apache-2.0
#include "passes/memory_plan_report.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <optional>
#include <sstream>
#include <vector>

#include "passes/buffer_lifetimes.h"

namespace hostjit {
namespace {

constexpr size_t kNumColumns = 5;
using Row = std::array<std::string, kNumColumns>;

std::string place_text(const BufferLifetime& lifetime, bool is_block) {
  const int64_t offset = lifetime.buffer->producer()->get_if<Allocate>()->offset;
  if (offset >= 0) return concat(is_block ? "block " : "", offset);
  return lifetime.escapes ? "output" : "own memory";
}

std::string life_text(const BufferLifetime& lifetime) {
  if (lifetime.is_persistent) return "every call";
  // Instant t is op t - 1; the op at `end` is the Deallocate or the return.
  return concat(lifetime.live.begin - 1, "..", lifetime.live.end - 1);
}

Row make_row(const BufferLifetime& lifetime, bool is_block) {
  const bool is_known = lifetime.buffer->tensor_type().is_static();
  return {concat("%", lifetime.buffer->name()), to_string(lifetime.buffer->type()),
          is_known ? std::to_string(lifetime.live.bytes) : "per row",
          place_text(lifetime, is_block), life_text(lifetime)};
}

void print_table(std::ostream& out, const std::vector<Row>& rows) {
  std::array<size_t, kNumColumns> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < kNumColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::ostringstream line;
    for (size_t i = 0; i < kNumColumns; ++i) {
      line << std::left << std::setw(static_cast<int>(widths[i])) << row[i] << "  ";
    }
    const std::string text = line.str();
    out << text.substr(0, text.find_last_not_of(' ') + 1) << "\n";
  }
}

// The last line about one arena: `name` and what it takes, with and without sharing.
void print_totals(std::ostream& out, const std::string& name, const ArenaPlan& plan,
                  int64_t unshared_bytes) {
  if (plan.blocks > 0) {
    out << name << " of " << plan.blocks << " blocks; bytes and offsets are decided per row\n";
    return;
  }
  out << name << " " << plan.bytes << " bytes, lower bound " << plan.lower_bound << " bytes";
  if (plan.lower_bound > 0) {
    out << " (" << std::fixed << std::setprecision(3)
        << static_cast<double>(plan.bytes) / static_cast<double>(plan.lower_bound) << "x)";
  }
  out << ", without sharing " << unshared_bytes << " bytes\n";
}

}  // namespace

std::string memory_plan_report(const Program& program) {
  std::vector<Row> rows{{"buffer", "type", "bytes", "offset", "ops"}};
  int64_t num_planned = 0;
  int64_t unshared_bytes = 0;
  int64_t unshared_device_bytes = 0;
  for (const BufferLifetime& lifetime : buffer_lifetimes(program, AliasAnalysis(program))) {
    const bool is_block = program.arena_of(lifetime.buffer->tensor_type()).blocks > 0;
    rows.push_back(make_row(lifetime, is_block));
    if (lifetime.buffer->producer()->get_if<Allocate>()->offset < 0) continue;
    ++num_planned;
    const bool on_cpu = lifetime.buffer->tensor_type().device.type == DeviceType::kCPU;
    (on_cpu ? unshared_bytes : unshared_device_bytes) += lifetime.live.bytes;
  }

  std::ostringstream out;
  out << "memory plan of " << program.name() << ": " << num_planned << " of " << rows.size() - 1
      << " buffers in the arena\n";
  print_table(out, rows);
  print_totals(out, "arena", program.arena(), unshared_bytes);
  if (const std::optional<Device> device = program.cuda_device()) {
    print_totals(out, concat("arena of ", to_string(*device)), program.device_arena(),
                 unshared_device_bytes);
  }
  return out.str();
}

}  // namespace hostjit
