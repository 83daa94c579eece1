// SPDX-License-Identifier: Apache-2.0
#include <unordered_map>
#include <vector>

#include "ir/program.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

using ValueMap = std::unordered_map<const Value*, const Value*>;

// The fields of one op in declaration order: attributes by address, values with the length of
// each list.
struct FlatFields {
  std::vector<const void*> attributes;
  std::vector<size_t> lengths;
  std::vector<const Value*> operand_values;
  std::vector<const Value*> result_values;
  std::vector<const Region*> regions;

  void operand(std::string_view, Value* value, Access) { operand_values.push_back(value); }
  void optional_operand(std::string_view, Value* value, Access) { operand_values.push_back(value); }
  void operands(std::string_view, const std::vector<Value*>& values, Access) {
    lengths.push_back(values.size());
    operand_values.insert(operand_values.end(), values.begin(), values.end());
  }
  void attribute(std::string_view, const auto& value, const auto&) { attributes.push_back(&value); }
  void result(std::string_view, Value* value, ResultKind) { result_values.push_back(value); }
  void results(std::string_view, const std::vector<Value*>& values, ResultKind) {
    lengths.push_back(values.size());
    result_values.insert(result_values.end(), values.begin(), values.end());
  }
  void region(std::string_view, const NestedRegion& region) { regions.push_back(&*region); }
};

template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}
// NaN of the same bits is equal, 0.0 and -0.0 are not.
bool same(double a, double b) { return Literal{a} == Literal{b}; }

// Compares the attributes of an op with those of another op of the same type.
struct AttributesEqual {
  const std::vector<const void*>& others;
  size_t position = 0;
  bool equal = true;

  void operand(std::string_view, Value*, Access) {}
  void optional_operand(std::string_view, Value*, Access) {}
  void operands(std::string_view, const std::vector<Value*>&, Access) {}
  template <class T>
  void attribute(std::string_view, const T& value, const auto&) {
    equal = equal && same(value, *static_cast<const T*>(others[position++]));
  }
  void result(std::string_view, Value*, ResultKind) {}
  void results(std::string_view, const std::vector<Value*>&, ResultKind) {}
  void region(std::string_view, const NestedRegion&) {}
};

bool regions_equal(const Region& a, const Region& b, ValueMap& map);

bool ops_equal(const Op& a, const Op& b, ValueMap& map) {
  if (a.payload.index() != b.payload.index() || a.location != b.location) return false;
  FlatFields fields_a;
  FlatFields fields_b;
  visit_fields(a, fields_a);
  visit_fields(b, fields_b);
  AttributesEqual attributes{fields_b.attributes};
  visit_fields(a, attributes);
  if (!attributes.equal || fields_a.lengths != fields_b.lengths) return false;
  for (size_t i = 0; i < fields_a.operand_values.size(); ++i) {
    const Value* operand = fields_a.operand_values[i];
    if ((operand ? map.at(operand) : nullptr) != fields_b.operand_values[i]) return false;
  }
  for (size_t i = 0; i < fields_a.result_values.size(); ++i) {
    if (fields_a.result_values[i]->type() != fields_b.result_values[i]->type()) return false;
    map[fields_a.result_values[i]] = fields_b.result_values[i];
  }
  for (size_t i = 0; i < fields_a.regions.size(); ++i) {
    if (!regions_equal(*fields_a.regions[i], *fields_b.regions[i], map)) return false;
  }
  return true;
}

bool regions_equal(const Region& a, const Region& b, ValueMap& map) {
  if (a.size() != b.size()) return false;
  auto other = b.begin();
  for (const auto& op : a) {
    if (!ops_equal(*op, **other++, map)) return false;
  }
  return true;
}

}  // namespace

bool structurally_equal(const Program& a, const Program& b) {
  if (a.name() != b.name() || a.inputs().size() != b.inputs().size() ||
      a.outputs().size() != b.outputs().size() || a.kernels() != b.kernels() ||
      !(a.arena() == b.arena()) || !(a.device_arena() == b.device_arena())) {
    return false;
  }
  ValueMap map;
  for (size_t i = 0; i < a.inputs().size(); ++i) {
    if (a.inputs()[i]->type() != b.inputs()[i]->type()) return false;
    map[a.inputs()[i]] = b.inputs()[i];
  }
  if (!regions_equal(a.init(), b.init(), map) || !regions_equal(a.body(), b.body(), map)) {
    return false;
  }
  for (size_t i = 0; i < a.outputs().size(); ++i) {
    if (map.at(a.outputs()[i]) != b.outputs()[i]) return false;
  }
  return true;
}

}  // namespace hostjit
