// SPDX-License-Identifier: Apache-2.0
#include "support/knobs.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include "support/check.h"
#include "support/option_list.h"

namespace hostjit {
namespace {

struct KnobSpec {
  KnobKind kind;
  std::string_view name;
  KnobArgument argument;
  bool default_on;
  std::string_view default_argument;
  std::string_view help;
};

constexpr KnobSpec kSpecs[] = {
#define HOSTJIT_KNOB_SPEC(enumerator, kind, name, argument, on, text, help) \
  {KnobKind::kind, name, KnobArgument::argument, on, text, help},
    HOSTJIT_FOR_EACH_KNOB(HOSTJIT_KNOB_SPEC)
#undef HOSTJIT_KNOB_SPEC
};
constexpr size_t kNumKnobs = std::size(kSpecs);

struct KnobState {
  bool on = false;
  std::vector<std::string> arguments;
};

struct KnobStates {
  std::array<KnobState, kNumKnobs> knobs;
  std::string dump_directory;
  std::string cache_directory;
};

KnobStates default_states() {
  KnobStates states;
  for (size_t i = 0; i < kNumKnobs; ++i) {
    states.knobs[i].on = kSpecs[i].default_on;
    if (!kSpecs[i].default_argument.empty()) {
      states.knobs[i].arguments = {std::string(kSpecs[i].default_argument)};
    }
  }
  return states;
}

std::string names_of_kind(KnobKind kind) {
  std::string names;
  for (const KnobSpec& spec : kSpecs) {
    if (spec.kind == kind) names += concat(names.empty() ? "" : ", ", spec.name);
  }
  return names;
}

int64_t parse_integer(std::string_view source, std::string_view name, const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, value);
  HOSTJIT_CHECK(status == std::errc{} && rest == end && value >= 0, source, ": option '", name,
                "' has argument '", text, "', expected a non-negative integer");
  return value;
}

void check_arguments(std::string_view source, const KnobSpec& spec, const OptionWord& word,
                     bool turn_on) {
  const size_t count = word.arguments.size();
  switch (spec.argument) {
    case KnobArgument::kNone: break;
    case KnobArgument::kInteger:
      if (!turn_on) break;
      HOSTJIT_CHECK(count == 1, source, ": option '", spec.name, "' has ", count,
                    " arguments, expected one integer");
      parse_integer(source, spec.name, word.arguments.front());
      return;
    case KnobArgument::kNames:
      if (turn_on) break;
      return;
    case KnobArgument::kDirectory:
      HOSTJIT_CHECK(count <= 1, source, ": option '", spec.name, "' has ", count,
                    " arguments, expected at most one directory");
      return;
  }
  HOSTJIT_CHECK(count == 0, source, ": option '", spec.name, "' has argument '",
                word.arguments.front(), "', expected none");
}

// Sets the knobs that `text`, the value of `variable`, names.
void apply_list(KnobStates& states, std::string_view variable, std::string_view text, KnobKind kind,
                bool turn_on, std::array<bool, kNumKnobs>& named) {
  for (OptionWord& word : parse_option_list(variable, text)) {
    const auto* spec = std::ranges::find_if(kSpecs, [&](const KnobSpec& candidate) {
      return candidate.kind == kind && candidate.name == word.name;
    });
    HOSTJIT_CHECK(spec != std::end(kSpecs), variable, ": unknown option '", word.name,
                  "', expected one of: ", names_of_kind(kind));
    const size_t index = spec - kSpecs;
    HOSTJIT_CHECK(!named[index], variable, ": option '", word.name, "' is given twice");
    named[index] = true;
    check_arguments(variable, *spec, word, turn_on);
    states.knobs[index] = {turn_on, std::move(word.arguments)};
  }
}

void apply_settings(KnobStates& states, const KnobSettings& settings) {
  std::array<bool, kNumKnobs> named{};
  apply_list(states, "HOSTJIT_ENABLE", settings.enable, KnobKind::kSwitch, true, named);
  apply_list(states, "HOSTJIT_DISABLE", settings.disable, KnobKind::kSwitch, false, named);
  apply_list(states, "HOSTJIT_DUMP", settings.dump, KnobKind::kDump, true, named);
  if (settings.dump_directory) states.dump_directory = *settings.dump_directory;
  if (settings.cache_directory) states.cache_directory = *settings.cache_directory;
}

KnobSettings settings_of_environment() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  return {value("HOSTJIT_ENABLE"), value("HOSTJIT_DISABLE"), value("HOSTJIT_DUMP"),
          value("HOSTJIT_DUMP_DIR"), value("HOSTJIT_CACHE_DIR")};
}

// The settings in force: those of the environment, under every layer that is pushed.
class KnobStore {
 public:
  static KnobStore& get() {
    static auto* store = new KnobStore;  // never destroyed: threads may outlive static destructors
    return *store;
  }

  KnobState state(Knob knob) { return locked_states().knobs[static_cast<size_t>(knob)]; }
  KnobStates states() { return locked_states(); }

  uint64_t push(const KnobSettings& settings) {
    const std::lock_guard lock(mutex_);
    KnobStates states = current();
    apply_settings(states, settings);
    layers_.push_back({++last_ticket_, settings});
    publish(std::move(states));
    return last_ticket_;
  }

  void pop(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    std::erase_if(layers_, [&](const Layer& layer) { return layer.ticket == ticket; });
    KnobStates states = environment_;
    for (const Layer& layer : layers_) apply_settings(states, layer.settings);
    publish(std::move(states));
  }

 private:
  struct Layer {
    uint64_t ticket;
    KnobSettings settings;
  };

  KnobStates locked_states() {
    const std::lock_guard lock(mutex_);
    return current();
  }

  // Needs mutex_.
  const KnobStates& current() {
    if (!is_read_) {
      environment_ = default_states();
      apply_settings(environment_, settings_of_environment());
      is_read_ = true;
      publish(environment_);
    }
    return states_;
  }

  // Needs mutex_.
  void publish(KnobStates states) {
    states_ = std::move(states);
    const auto publish_switch = [this](std::atomic<int8_t>& published, Knob knob) {
      const bool on = states_.knobs[static_cast<size_t>(knob)].on;
      published.store(on ? 1 : 0, std::memory_order_relaxed);
    };
    publish_switch(detail::compile_state, Knob::kCompile);
    publish_switch(detail::host_ir_jit_state, Knob::kHostIrJit);
  }

  std::mutex mutex_;  // guards all that follows
  bool is_read_ = false;
  KnobStates environment_;
  KnobStates states_;
  std::vector<Layer> layers_;
  uint64_t last_ticket_ = 0;
};

}  // namespace

bool is_enabled(Knob knob) { return KnobStore::get().state(knob).on; }

std::vector<std::string> knob_arguments(Knob knob) {
  return KnobStore::get().state(knob).arguments;
}

std::optional<int64_t> knob_integer(Knob knob) {
  const KnobSpec& spec = kSpecs[static_cast<size_t>(knob)];
  HOSTJIT_ICHECK(spec.argument == KnobArgument::kInteger, "knob '", spec.name, "' is no integer");
  const KnobState state = KnobStore::get().state(knob);
  if (!state.on) return std::nullopt;
  return parse_integer("knobs", spec.name, state.arguments.front());
}

std::string dump_directory(Knob knob) {
  KnobStates states = KnobStore::get().states();
  const KnobState& state = states.knobs[static_cast<size_t>(knob)];
  return state.arguments.empty() ? states.dump_directory : state.arguments.front();
}

std::string cache_directory() { return KnobStore::get().states().cache_directory; }

uint64_t push_knobs(const KnobSettings& settings) { return KnobStore::get().push(settings); }
void pop_knobs(uint64_t ticket) { KnobStore::get().pop(ticket); }

}  // namespace hostjit
