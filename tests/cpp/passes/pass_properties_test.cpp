// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/abstract_machine.h"
#include "passes/in_place_reuse.h"
#include "passes/pipeline.h"
#include "passes/random_program.h"

namespace hostjit {
namespace {

constexpr uint32_t kNumPrograms = 250;

// What a caller sees of two calls: outputs, inputs afterwards, effects.
struct Observed {
  std::vector<std::vector<uint8_t>> bytes;
  uint64_t num_effects = 0;
  friend bool operator==(const Observed&, const Observed&) = default;
};

Observed observe(const Program& program) {
  AbstractMachine machine(program);
  std::mt19937 random(1);
  Observed observed;
  for (int call = 0; call < 2; ++call) {
    std::vector<std::vector<uint8_t>> inputs;
    for (const Value* input : program.inputs()) {
      auto& bytes = inputs.emplace_back(input->tensor_type().extent_in_bytes() + 1);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    }
    for (auto& output : machine.call(inputs)) observed.bytes.push_back(std::move(output));
    for (auto& input : inputs) observed.bytes.push_back(std::move(input));
  }
  observed.num_effects = machine.num_effects();
  return observed;
}

int num_steps_of(uint32_t seed) { return 5 + static_cast<int>(seed % 60); }

TEST(PassProperties, EachPassKeepsTheMeaningAndIsIdempotent) {
  for (uint32_t seed = 0; seed < kNumPrograms; ++seed) {
    const Program original = random_program(seed, num_steps_of(seed));
    const Observed expected = observe(original);
    for (const Pass& pass : default_pipeline()) {
      Program program = original.clone();
      run_passes(program, {&pass, 1});
      ASSERT_EQ(observe(program), expected) << pass.name << "\n"
                                            << to_string(original) << to_string(program);
      const Program once = program.clone();
      run_passes(program, {&pass, 1});
      ASSERT_TRUE(structurally_equal(once, program)) << pass.name << "\n"
                                                     << to_string(once) << to_string(program);
    }
  }
}

TEST(PassProperties, PipelineKeepsTheMeaningAndIsIdempotent) {
  for (uint32_t seed = 0; seed < kNumPrograms; ++seed) {
    const Program original = random_program(seed, num_steps_of(seed));
    Program program = original.clone();
    run_pipeline(program);
    ASSERT_EQ(observe(program), observe(original)) << to_string(original) << to_string(program);
    const Program once = program.clone();
    run_pipeline(program);
    ASSERT_TRUE(structurally_equal(once, program)) << to_string(once) << to_string(program);
  }
}

TEST(PassProperties, PlanIsDisjointAndAtLeastTheLowerBound) {
  size_t num_handovers = 0;
  for (uint32_t seed = 0; seed < kNumPrograms; ++seed) {
    Program program = random_program(seed, num_steps_of(seed));
    run_pipeline(program);
    const ArenaPlan& arena = program.arena();
    ASSERT_GE(arena.bytes, arena.lower_bound);
    std::vector<BufferLifetime> planned = buffer_lifetimes(program, AliasAnalysis(program));
    const auto offset_of = [](const BufferLifetime& lifetime) {
      return lifetime.buffer->producer()->get_if<Allocate>()->offset;
    };
    std::erase_if(planned, [&](const BufferLifetime& lifetime) { return offset_of(lifetime) < 0; });
    const std::vector<Handover> handovers =
        find_handovers(program, AliasAnalysis(program), planned);
    const auto is_handed_over = [&](const BufferLifetime& a, const BufferLifetime& b) {
      return std::ranges::any_of(handovers, [&](const Handover& handover) {
        const BufferLifetime* before = &planned[handover.before];
        const BufferLifetime* after = &planned[handover.after];
        return (before == &a && after == &b) || (before == &b && after == &a);
      });
    };
    num_handovers += handovers.size();
    for (const BufferLifetime& a : planned) {
      ASSERT_LE(offset_of(a) + a.live.bytes, arena.bytes);
      for (const BufferLifetime& b : planned) {
        if (a.buffer == b.buffer || !a.live.overlaps(b.live)) continue;
        if (is_handed_over(a, b)) {
          ASSERT_EQ(offset_of(a), offset_of(b));
          continue;
        }
        ASSERT_TRUE(offset_of(a) + a.live.bytes <= offset_of(b) ||
                    offset_of(b) + b.live.bytes <= offset_of(a))
            << "%" << a.buffer->name() << ", %" << b.buffer->name() << "\n"
            << to_string(program);
      }
    }
  }
  EXPECT_GT(num_handovers, kNumPrograms / 4);  // otherwise the exception above says nothing
}

// The random programs must reach what the passes do; otherwise the tests above say nothing.
TEST(PassProperties, EachPassChangesManyOfThePrograms) {
  std::vector<int> num_changed(default_pipeline().size(), 0);
  for (uint32_t seed = 0; seed < kNumPrograms; ++seed) {
    Program program = random_program(seed, num_steps_of(seed));
    const std::vector<PassTiming> timings = run_pipeline(program);
    for (size_t i = 0; i < timings.size(); ++i) num_changed[i] += timings[i].changed;
  }
  for (size_t i = 0; i < num_changed.size(); ++i) {
    // Of CUDA: see cut_graphs.hir and cuda_streams_test.cpp.
    const std::string_view name = default_pipeline()[i].name;
    if (name == "cut_graphs" || name == "spread_streams") continue;
    EXPECT_GT(num_changed[i], static_cast<int>(kNumPrograms / 4)) << default_pipeline()[i].name;
  }
}

}  // namespace
}  // namespace hostjit
