// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "ir/printer.h"
#include "passes/canonicalise_views.h"
#include "passes/cut_graphs.h"
#include "passes/hoist_constants.h"
#include "passes/insert_deallocations.h"
#include "passes/plan_memory.h"
#include "passes/remove_dead_ops.h"
#include "passes/spread_streams.h"
#include "support/dump.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

constexpr Pass kPipeline[] = {
    // Views refer to the value that owns the memory, each of them once.
    {"canonicalise_views", "Views of views become views of their root; equal views become one.",
     canonicalise_views},

    // What nobody sees is not done.
    {"remove_dead_ops", "Drops ops and kernels without an effect on outputs or inputs.",
     remove_dead_ops},

    // What is the same at every call is done once per frame.
    {"hoist_constants", "Moves work that depends on no input into init.", hoist_constants},

    // What does not depend on one another runs side by side, where that is asked for.
    {"spread_streams", "Puts branches of work on a CUDA device on several streams.",
     spread_streams},

    // Memory lives from its allocation to its last use.
    {"insert_deallocations", "Ends the life of each buffer after its last use.",
     insert_deallocations},

    // Buffers that are not alive together share bytes of one arena.
    {"plan_memory", "Gives each buffer that stays inside a place in the frame's arena.",
     plan_memory},

    // Launches that follow one another are one piece of work for the driver.
    {"cut_graphs", "Numbers the runs of launches that can be CUDA graphs.", cut_graphs},
};

// The pipeline without what HOSTJIT_DISABLE=passes(...) names: without all when it has no names.
std::vector<Pass> enabled_passes() {
  if (is_enabled(Knob::kPasses)) return {std::begin(kPipeline), std::end(kPipeline)};
  std::vector<Pass> enabled;
  const std::vector<std::string> disabled = knob_arguments(Knob::kPasses);
  for (const std::string& name : disabled) find_pass(name);  // throws for an unknown name
  if (disabled.empty()) return enabled;
  std::ranges::copy_if(kPipeline, std::back_inserter(enabled), [&](const Pass& pass) {
    return std::ranges::find(disabled, pass.name) == disabled.end();
  });
  return enabled;
}

}  // namespace

std::span<const Pass> default_pipeline() { return kPipeline; }

const Pass& find_pass(std::string_view name) {
  std::string names;
  for (const Pass& pass : kPipeline) {
    if (pass.name == name) return pass;
    names += concat(names.empty() ? "" : ", ", pass.name);
  }
  throw_error(concat("unknown pass '", name, "', expected one of: ", names));
}

std::vector<PassTiming> run_pipeline(Program& program) {
  std::vector<PassTiming> timings = run_passes(program, enabled_passes());
  const DumpItem item{Knob::kDumpHostIr, program.name(), "host_ir", "hir"};
  if (is_enabled(item.knob)) dump(item, to_string(program));
  return timings;
}

}  // namespace hostjit
