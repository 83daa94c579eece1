// SPDX-License-Identifier: Apache-2.0
#include "ir/verifier.h"

#include <bit>
#include <optional>
#include <unordered_set>
#include <utility>

#include "ir/attribute_text.h"
#include "ir/effects.h"
#include "ir/memory_verifier.h"
#include "ir/row_symbols.h"
#include "ir/verification_error.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

OpVerifier verifier_of(const Op& op) {
  return OpVerifier(op.name(), describe(op).substr(op.name().size()));
}

// Checks that the results are there and are of the kind that the field declares.
struct ResultChecker {
  const OpVerifier& verifier;

  void operand(std::string_view, const Value*, Access) {}
  void optional_operand(std::string_view, const Value*, Access) {}
  void operands(std::string_view, const std::vector<Value*>&, Access) {}
  void attribute(std::string_view, const auto&, const auto&) {}
  void result(OperandName name, const Value* value, ResultKind kind) {
    verifier.require(value != nullptr, name, "is missing", "a result");
    if (kind != ResultKind::kScalar) verifier.require_tensor(name, value).check();
  }
  void results(std::string_view name, const std::vector<Value*>& values, ResultKind kind) {
    for (size_t i = 0; i < values.size(); ++i) result({name, i}, values[i], kind);
  }
  void region(std::string_view, const NestedRegion&) {}
};

// Requires that memory which the op writes is named once: inputs are never the outputs.
void check_written_once(const Op& op, const OpVerifier& verifier) {
  struct Use {
    std::string name;
    Access access;
  };
  std::unordered_map<const Value*, Use> seen;
  for_each_named_operand(op, [&](const std::string& name, const Value* value, Access access) {
    const auto [position, inserted] = seen.try_emplace(value, Use{name, access});
    const Use& other = position->second;
    if (inserted || !(writes(access) || writes(other.access))) return;
    verifier.fail(name, concat("is %", value->name(), ", which is '", other.name, "' too"),
                  "different memory, because the op writes it");
  });
}

// Checks definitions, uses and names, op by op.
class ProgramVerifier {
 public:
  explicit ProgramVerifier(const Program& program) : program_(program), symbols_(program) {}

  void run() {
    device_ = program_.cuda_device();
    verify_arena("arena", program_.arena());
    verify_arena("device_arena", program_.device_arena());
    for (const Value* input : program_.inputs()) define_input(input);
    verify_input_symbols();
    for (const auto& op : program_.init()) verify_about(*op, [&] { verify_init_op(*op); });
    defined_.insert(inputs_.begin(), inputs_.end());
    for (const auto& op : program_.body()) verify_about(*op, [&] { verify_next_op(*op); });
    HOSTJIT_CHECK(open_ranges_ == 0, in_program(), open_ranges_,
                  " range_push without a range_pop, expected one for each");
    for (size_t i = 0; i < program_.outputs().size(); ++i) {
      const Value* output = program_.outputs()[i];
      HOSTJIT_CHECK(output != nullptr, in_program(), "output ", i, " is missing");
      HOSTJIT_CHECK(defined_.contains(output), in_program(), "output ", i, " is %", output->name(),
                    ", which is not defined");
      const bool is_result = !std::holds_alternative<StreamType>(output->type()) &&
                             !std::holds_alternative<EventType>(output->type());
      HOSTJIT_CHECK(is_result, in_program(), "output ", i, " is %", output->name(), " of type ",
                    to_string(output->type()), ", expected a tensor or a number");
    }
  }

 private:
  std::string in_program() const { return concat("program '", program_.name(), "': "); }

  void verify_arena(const char* name, const ArenaPlan& arena) const {
    const bool power_of_two =
        arena.alignment > 0 && std::has_single_bit(static_cast<uint64_t>(arena.alignment));
    HOSTJIT_CHECK(power_of_two, in_program(), name, " alignment is ", arena.alignment,
                  ", expected a power of two");
    HOSTJIT_CHECK(arena.bytes >= 0 && arena.lower_bound >= 0, in_program(), name, " has ",
                  arena.bytes, " bytes and lower bound ", arena.lower_bound,
                  ", expected 0 or more");
    HOSTJIT_CHECK(arena.blocks >= 0, in_program(), name, " has ", arena.blocks,
                  " blocks, expected 0 or more");
    HOSTJIT_CHECK(arena.lower_bound <= arena.bytes, in_program(), name, " has lower bound ",
                  arena.lower_bound, ", expected at most its ", arena.bytes, " bytes");
  }

  void define_input(const Value* input) {
    inputs_.insert(input);
    if (const auto* type = std::get_if<TensorType>(&input->type())) return type->check();
  }

  // Sizes of inputs are symbols that `size` defines; strides may follow from them.
  void verify_input_symbols() const {
    for (const Value* input : program_.inputs()) {
      const auto* type = std::get_if<TensorType>(&input->type());
      if (!type) continue;
      for (const Dim& dim : type->dims) {
        if (dim.is_constant()) continue;
        const std::optional<size_t> symbol = symbols_.find(dim.symbol);
        HOSTJIT_CHECK(symbol && symbols_.is_input(*symbol), in_program(), "input %", input->name(),
                      " has symbol ", to_string(dim),
                      ", expected one that an op of the body defines, as %", dim.symbol,
                      " = size(source=%", input->name(), ", dim=...) does");
      }
      for (const Dim& stride : type->strides) {
        HOSTJIT_CHECK(is_defined(stride), in_program(), "input %", input->name(), " has symbol ",
                      to_string(stride), ", expected the name of an index value that depends on ",
                      "inputs only");
      }
    }
  }

  bool is_defined(const Dim& dim) const {
    return dim.is_constant() || symbols_.find(dim.symbol).has_value();
  }

  void verify_init_op(const Op& op) {
    HOSTJIT_CHECK(is_removable(op), describe(op),
                  ": has effects of its own, expected in init only ops without");
    HOSTJIT_CHECK(!has_regions(op), describe(op),
                  ": has regions, expected in init only ops without");
    HOSTJIT_CHECK(!reads_number(op), describe(op),
                  ": takes a number out of memory, expected in init only ops without");
    for_each_named_operand(op, [&](const std::string& name, const Value* value, Access) {
      if (!inputs_.contains(value)) return;
      verifier_of(op).fail(name, concat("is %", value->name(), ", an input"),
                           "in init only values of init");
    });
    verify_next_op(op);
  }

  void verify_next_op(const Op& op) {
    verify_op(op);
    const OpVerifier verifier = verifier_of(op);
    for_each_named_operand(op, [&](const std::string& name, const Value* value, Access) {
      if (defined_.contains(value)) return;
      verifier.fail(name, concat("is %", value->name(), ", which is not defined here"),
                    "a value defined before");
    });
    for (const Value* result : results_of(op)) {
      HOSTJIT_CHECK(defined_.insert(result).second, describe(op), ": defines %", result->name(),
                    " a second time");
      HOSTJIT_ICHECK(result->producer() == &op, describe(op), ": %", result->name(),
                     " names another op as its producer");
      if (const auto* type = std::get_if<TensorType>(&result->type())) {
        verify_symbols(op, *result, *type);
      }
    }
    for_each_dim(op, [&](const Dim& dim) {
      HOSTJIT_CHECK(is_defined(dim), describe(op), ": has symbol ", to_string(dim),
                    ", expected the name of an index value that depends on inputs only");
    });
    if (const auto* launch = op.get_if<LaunchKernel>()) verify_kernel(verifier, *launch);
    HOSTJIT_CHECK(!op.info().orders_streams || device_, describe(op),
                  ": has no device, expected a program with a tensor on a CUDA device");
    open_ranges_ += op.is<RangePush>();
    open_ranges_ -= op.is<RangePop>();
    HOSTJIT_CHECK(open_ranges_ >= 0, describe(op), ": no range is open here");
    for_each_region(op, [&](std::string_view name, const NestedRegion& region) {
      verify_nested(op, name, *region);
    });
    // What a region's op defines for it, the index of a loop, is not seen behind it.
    if (!has_regions(op)) return;
    for (const Value* result : results_of(op)) defined_.erase(result);
  }

  void verify_kernel(const OpVerifier& verifier, const LaunchKernel& launch) {
    const auto found = program_.kernels().find(launch.kernel);
    if (found == program_.kernels().end()) {
      verifier.fail("kernel", concat("is @", launch.kernel, ", which does not exist"),
                    "a kernel of the program");
    }
    const Kernel& kernel = found->second;
    if (kernel.language == KernelLanguage::kSharedLibrary && !launch.in_place.empty()) {
      verifier.fail("in_place", concat("is ", to_string(launch.in_place)),
                    "[] of a kernel in a shared library");
    }
    if (is_address(kernel.language)) function_address(kernel);
    if (has_signature(kernel)) {
      verify_parameters(verifier, launch, kernel);
    } else if (!launch.parameters.empty()) {
      verifier.fail("parameters", concat("is ", to_string(launch.parameters)),
                    concat("[] of @", kernel.name, ", which has no signature"));
    }
    const size_t num_tensors = launch.inputs.size() + launch.in_out.size() + launch.outputs.size();
    if (is_cuda(kernel.language) && num_tensors == 0) {
      verifier.fail("inputs", "is empty, as in_out and outputs are",
                    "a tensor of the device that the kernel runs on");
    }
    if (num_tensors == 0) return;
    const Device device = launch.device();
    if (is_cuda(kernel.language) != (device.type == DeviceType::kCUDA)) {
      verifier.fail("kernel",
                    concat("is @", launch.kernel, ", which is ", to_string(kernel.language)),
                    concat("a kernel for ", to_string(device)));
    }
  }

  static void verify_parameters(const OpVerifier& verifier, const LaunchKernel& launch,
                                const Kernel& kernel) {
    const auto require_none = [&](std::string_view name, bool is_none, const std::string& found) {
      if (is_none) return;
      verifier.fail(name, concat("is ", found), "[] of a kernel with a signature");
    };
    require_none("in_place", launch.in_place.empty(), to_string(launch.in_place));
    require_none("errors", launch.errors.empty(), attribute_to_string(launch.errors));
    const std::vector<Value*> operands = launch.parameter_operands();
    if (operands.size() != kernel.parameters.size()) {
      verifier.fail("parameters", concat("are ", operands.size()),
                    concat("the ", kernel.parameters.size(), " of @", kernel.name));
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      const ParameterType type = kernel.parameters[i];
      const bool is_float = type == ParameterType::kF32 || type == ParameterType::kF64;
      const bool fits = type == ParameterType::kPointer ? operands[i]->is_tensor()
                        : is_float ? std::holds_alternative<F64Type>(operands[i]->type())
                                   : std::holds_alternative<IndexType>(operands[i]->type());
      if (fits) continue;
      verifier.fail("parameters",
                    concat("has %", operands[i]->name(), " of type ",
                           to_string(operands[i]->type()), " for parameter ", i),
                    concat(to_string(type), " of @", kernel.name));
    }
  }

  void verify_nested(const Op& op, std::string_view name, const Region& region) {
    const int64_t open_outside = std::exchange(open_ranges_, 0);
    for (const auto& nested : region) verify_about(*nested, [&] { verify_next_op(*nested); });
    HOSTJIT_CHECK(open_ranges_ == 0, describe(op), ": '", name, "' has ", open_ranges_,
                  " range_push without a range_pop, expected one for each");
    open_ranges_ = open_outside;
    for (const auto& nested : region) {
      for (const Value* result : results_of(*nested)) defined_.erase(result);
    }
  }

  void verify_symbols(const Op& op, const Value& result, const TensorType& type) const {
    for (const auto* dims : {&type.dims, &type.strides}) {
      for (const Dim& dim : *dims) {
        HOSTJIT_CHECK(is_defined(dim), describe(op), ": %", result.name(), " has symbol ",
                      to_string(dim), ", expected the name of an index value that depends on ",
                      "inputs only");
      }
    }
  }

  const Program& program_;
  std::unordered_set<const Value*> inputs_;
  std::unordered_set<const Value*> defined_;
  const RowSymbols symbols_;
  std::optional<Device> device_;
  int64_t open_ranges_ = 0;
};

}  // namespace

void verify_op(const Op& op) {
  const OpVerifier verifier = verifier_of(op);
  for_each_named_operand(op, [&](const std::string& name, const Value* value, Access) {
    verifier.require(value != nullptr, name, "is missing", "a value");
  });
  ResultChecker results{verifier};
  visit_fields(op, results);
  check_written_once(op, verifier);
  visit_op(op, [&](const auto& payload) { payload.verify(verifier); });
}

void verify_program(const Program& program) {
  ProgramVerifier(program).run();
  verify_memory(program);
}

}  // namespace hostjit
