// SPDX-License-Identifier: Apache-2.0
#include "passes/canonicalise_views.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/effects.h"
#include "ir/visitor.h"
#include "passes/alias_analysis.h"

namespace hostjit {
namespace {

// Values that could be taken for another operand of an op that writes one of the two.
std::unordered_set<const Value*> written_under_two_names(const Program& program) {
  const AliasAnalysis aliases(program);
  std::unordered_set<const Value*> values;
  for (const Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) {
      const std::vector<OperandUse> uses = operand_uses(op);
      for (size_t i = 0; i < uses.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (!writes(uses[i].access) && !writes(uses[j].access)) continue;
          if (uses[i].value->type() != uses[j].value->type()) continue;
          if (!aliases.share_root(uses[i].value, uses[j].value)) continue;
          values.insert({uses[i].value, uses[j].value});
        }
      }
    });
  }
  return values;
}

int64_t item_bytes(const Value& tensor) { return size_in_bytes(tensor.tensor_type().dtype); }

class ViewCanonicaliser {
 public:
  explicit ViewCanonicaliser(Program& program)
      : program_(program),
        pinned_(written_under_two_names(program)),
        inputs_(program.inputs().begin(), program.inputs().end()),
        outputs_(program.outputs().begin(), program.outputs().end()) {}

  void run() {
    visit(program_.init());
    visit(program_.body());
    program_.replace_uses(replacement_);
  }

 private:
  void visit(Region& region) {
    std::erase_if(region, [&](const auto& op) {
      for_each_region(*op, [&](std::string_view, NestedRegion& nested) {
        const auto outside = views_;  // those made inside are not defined behind it
        visit(*nested);
        views_ = outside;
      });
      View* view = op->template get_if<View>();
      return view && canonicalise(*view);
    });
  }

  // Rewrites the source of `view`. True when another value replaces the result.
  bool canonicalise(View& view) {
    if (const auto found = replacement_.find(view.source); found != replacement_.end()) {
      view.source = found->second;
    }
    const Op* producer = view.source->producer();
    if (const View* inner = producer ? producer->get_if<View>() : nullptr) {
      if (const std::optional<Dim> offset = sum(view.offset, in_elements_of(view, *inner))) {
        view.offset = *offset;
        view.source = inner->source;
      }
    }
    Value* equal = find_equal(view);
    if (!equal || !may_replace(view.result, equal)) {
      views_[key_of(view)].push_back(view.result);
      return false;
    }
    if (outputs_.contains(view.result)) outputs_.insert(equal);
    replacement_[view.result] = equal;
    view.result->set_producer(nullptr);
    return true;
  }

  // Source and offset.
  using ViewKey = std::tuple<const Value*, int64_t, std::string>;
  static ViewKey key_of(const View& view) {
    return {view.source, view.offset.value, view.offset.symbol};
  }

  // The offset of `inner` in elements of `view`, a view of it; nullopt for what an op would have to
  // compute, and for the midst of an element.
  static std::optional<Dim> in_elements_of(const View& view, const View& inner) {
    const int64_t inner_bytes = item_bytes(*inner.result);
    const int64_t bytes = item_bytes(*view.result);
    if (inner_bytes == bytes) return inner.offset;
    if (!inner.offset.is_constant() || inner.offset.value * inner_bytes % bytes != 0) {
      return std::nullopt;
    }
    return Dim(inner.offset.value * inner_bytes / bytes);
  }

  // nullopt for what an op would have to compute.
  static std::optional<Dim> sum(const Dim& a, const std::optional<Dim>& b) {
    if (!b) return std::nullopt;
    if (a.is_constant() && b->is_constant()) return Dim(a.value + b->value);
    if (a == Dim(0)) return b;
    if (*b == Dim(0)) return a;
    return std::nullopt;
  }

  // A value before `view` that refers to the same elements in the same shape; or null.
  Value* find_equal(const View& view) {
    if (view.offset == Dim(0) && view.source->type() == view.result->type()) return view.source;
    const auto found = views_.find(key_of(view));
    if (found == views_.end()) return nullptr;
    const auto equal = std::ranges::find_if(
        found->second, [&](const Value* other) { return other->type() == view.result->type(); });
    return equal == found->second.end() ? nullptr : *equal;
  }

  bool may_replace(const Value* result, const Value* equal) const {
    if (pinned_.contains(result)) return false;
    return !outputs_.contains(result) || (!outputs_.contains(equal) && !inputs_.contains(equal));
  }

  Program& program_;
  std::unordered_set<const Value*> pinned_;
  std::unordered_set<const Value*> inputs_;
  std::unordered_set<const Value*> outputs_;
  std::unordered_map<Value*, Value*> replacement_;
  std::map<ViewKey, std::vector<Value*>> views_;
};

}  // namespace

void canonicalise_views(Program& program) { ViewCanonicaliser(program).run(); }

}  // namespace hostjit
