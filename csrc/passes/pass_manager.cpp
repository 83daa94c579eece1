// SPDX-License-Identifier: Apache-2.0
#include "passes/pass_manager.h"

#include <chrono>
#include <string>

#include "ir/printer.h"
#include "ir/verifier.h"
#include "support/dump.h"

namespace hostjit {
namespace {

void verify_after(const Program& program, std::string_view pass) {
  try {
    verify_program(program);
  } catch (const Error& error) {
    HOSTJIT_ICHECK(false, "pass '", pass, "' broke program '", program.name(), "': ", error.what());
  }
}

void dump_stage(const Program& program, const std::string& stage, bool changed) {
  const DumpItem item{Knob::kDumpHostIrPasses, program.name(), stage, "hir"};
  if (!is_enabled(item.knob)) return;
  if (changed) {
    dump(item, to_string(program));
  } else {
    dump_unchanged(item);
  }
}

}  // namespace

std::vector<PassTiming> run_passes(Program& program, std::span<const Pass> passes) {
  using Clock = std::chrono::steady_clock;
  verify_program(program);
  dump_stage(program, "before_passes", /*changed=*/true);
  std::vector<PassTiming> timings;
  for (const Pass& pass : passes) {
    const Program before = program.clone();
    const Clock::time_point start = Clock::now();
    pass.run(program);
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    verify_after(program, pass.name);
    const bool changed = !structurally_equal(before, program);
    dump_stage(program, concat("after_", pass.name), changed);
    timings.push_back({pass.name, elapsed.count(), changed});
  }
  return timings;
}

}  // namespace hostjit
