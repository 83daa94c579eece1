// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/kernel.h"
#include "ir/op.h"

namespace hostjit {

// What plan_memory decided for one frame; bytes. In a program with symbols it says which buffers
// have the same memory, one after another: each Allocate has the number of a block for its offset.
// Where the blocks are depends on the sizes of a call.
struct ArenaPlan {
  int64_t blocks = 0;  // of a program with symbols, which has no bytes
  int64_t bytes = 0;
  int64_t lower_bound = 0;  // most bytes live at once
  int64_t alignment = 64;
  friend bool operator==(const ArenaPlan&, const ArenaPlan&) = default;
};

// A Host IR program: owns its values, ops and kernels. Movable, not copyable; see clone().
class Program {
 public:
  explicit Program(std::string name) : name_(std::move(name)) {}
  Program(Program&&) noexcept = default;
  Program& operator=(Program&&) noexcept = default;

  const std::string& name() const { return name_; }
  const std::vector<Value*>& inputs() const { return inputs_; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  const std::map<std::string, Kernel>& kernels() const { return kernels_; }

  // Ops of `init` run once when a frame is made; ops of `body` run at every call.
  Region& init() { return init_; }
  const Region& init() const { return init_; }
  Region& body() { return body_; }
  const Region& body() const { return body_; }

  Value* add_input(Type type, const std::string& name);
  bool has_name(const std::string& name) const { return names_.contains(name); }
  // A value whose name is `hint`, made unique; an empty hint numbers it.
  Value* add_value(Type type, const std::string& hint = "");
  void set_outputs(std::vector<Value*> outputs) { outputs_ = std::move(outputs); }
  // Throws Error when a kernel of that name with another text exists.
  void add_kernel(Kernel kernel);
  void remove_kernel(const std::string& name) { kernels_.erase(name); }

  // Rewrites every operand and output by `replacement` (chains are followed).
  void replace_uses(const std::unordered_map<Value*, Value*>& replacement);

  // Memory of the CPU, and memory of cuda_device().
  const ArenaPlan& arena() const { return arena_; }
  void set_arena(const ArenaPlan& plan) { arena_ = plan; }
  const ArenaPlan& device_arena() const { return device_arena_; }
  void set_device_arena(const ArenaPlan& plan) { device_arena_ = plan; }
  // The arena that a buffer of this type is planned in.
  const ArenaPlan& arena_of(const TensorType& type) const {
    return type.device.type == DeviceType::kCPU ? arena_ : device_arena_;
  }

  // The CUDA device that the program launches on and has memory of: that of the first tensor on
  // one, inputs first.
  std::optional<Device> cuda_device() const;

  // True when a type, an offset or a grid has a symbol.
  bool is_symbolic() const;

  Program clone(bool with_kernels = true) const;

 private:
  std::string unique_name(const std::string& hint);

  std::string name_;
  std::deque<std::unique_ptr<Value>> values_;
  std::unordered_set<std::string> names_;
  int64_t next_number_ = 0;
  std::vector<Value*> inputs_;
  std::vector<Value*> outputs_;
  Region init_;
  Region body_;
  std::map<std::string, Kernel> kernels_;
  ArenaPlan arena_;
  ArenaPlan device_arena_;
};

// Same inputs, ops, fields, outputs and kernels; names of values do not count, those of symbols do.
bool structurally_equal(const Program& a, const Program& b);

}  // namespace hostjit
