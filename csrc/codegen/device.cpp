// SPDX-License-Identifier: Apache-2.0
// Launches on a CUDA device.
#include <llvm/IR/Constants.h>

#include <cstddef>

#include "codegen/dispatcher.h"
#include "runtime/cuda_types.h"

namespace hostjit {
namespace {

using cuda::CUlaunchAttribute;
using cuda::CUlaunchConfig;

// The CUlaunchAttributes of a launch, as the words that they are made of.
std::vector<uint32_t> attribute_words(const LaunchKernel& op) {
  constexpr size_t kWords = sizeof(CUlaunchAttribute) / sizeof(uint32_t);
  std::vector<uint32_t> words;
  const auto add = [&](int32_t id, const std::vector<int64_t>& values) {
    const size_t begin = words.size();
    words.resize(begin + kWords, 0);
    words[begin] = static_cast<uint32_t>(id);
    for (size_t i = 0; i < values.size(); ++i) {
      words[begin + offsetof(CUlaunchAttribute, value) / sizeof(uint32_t) + i] =
          static_cast<uint32_t>(values[i]);
    }
  };
  if (op.cooperative) add(cuda::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, {1});
  if (!op.cluster.empty()) add(cuda::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, op.cluster);
  if (op.programmatic) add(cuda::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, {1});
  return words;
}

}  // namespace

void Dispatcher::begin_device() {
  llvm::Value* status = call(Extern::hostjit_begin_device, {frame_});
  branch_to_cleanup_if(builder_.CreateICmpNE(status, builder_.getInt32(0)));
  const auto load = [&](size_t offset, const char* name) {
    return builder_.CreateLoad(pointer_, address(frame_, static_cast<int64_t>(offset)), name);
  };
  stream_ = load(offsetof(Frame, stream), "stream");
  device_arena_ = load(offsetof(Frame, device_arena), "device_arena");
}

void Dispatcher::emit_device_launch(const LaunchKernel& op) {
  const Device device = op.device();
  HOSTJIT_CHECK(device.index == storage_.layout().device, "launch_kernel '", op.kernel,
                "': its tensors are on ", to_string(device),
                ", expected cuda:", storage_.layout().device, ", where the program launches");
  for (const Value* operand : op.in_out) announce_write(operand);
  for (const Value* operand : op.outputs) announce_write(operand);
  if (op.graph >= 0 && !node_times_) return emit_graph_node(op);
  std::vector<llvm::Value*> grid;
  llvm::Value* is_empty = builder_.getFalse();
  for (const Dim& size : op.grid) {
    grid.push_back(dim(size));
    is_empty = builder_.CreateOr(is_empty, builder_.CreateICmpSLE(grid.back(), integer(0)));
  }
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(is_empty);
  if (known && known->isOne()) return;
  const auto launch = [&] {
    const Kernel& kernel = program_.kernels().at(op.kernel);
    const int64_t index = storage_.launches().kernel_of(op);
    llvm::Value* table = frame_field(offsetof(Frame, device_functions), pointer_, "functions");
    const auto entry = [&](int64_t position, const char* name) {
      return builder_.CreateLoad(
          pointer_, address(table, position * static_cast<int64_t>(sizeof(void*))), name);
    };
    llvm::Value* config = launch_config(op, grid);
    llvm::Value* parameters = launch_parameters(op, kernel);
    auto* type = llvm::FunctionType::get(builder_.getInt32Ty(),
                                         {pointer_, pointer_, pointer_, pointer_}, false);
    llvm::CallInst* result =
        builder_.CreateCall(type, entry(0, "launch"),
                            {config, entry(1 + index, kernel.name.c_str()), parameters,
                             llvm::Constant::getNullValue(pointer_)},
                            "result");
    result->setDoesNotThrow();
    llvm::Value* failed = builder_.CreateICmpNE(result, builder_.getInt32(0));
    emit_if(failed, [&] {
      note_node();
      call(Extern::hostjit_fail_launch, {frame_, integer(index), result});
    });
    branch_to_cleanup_if(failed);
  };
  if (known) return launch();
  emit_if(builder_.CreateNot(is_empty), launch);
}

void Dispatcher::emit_graph_node(const LaunchKernel& op) {
  const LaunchPlan::GraphPlace& place = storage_.launches().place_of(op);
  const GraphSpec& graph = storage_.layout().graphs[place.graph];
  if (!graph_words_) {
    auto* type = llvm::ArrayType::get(builder_.getInt64Ty(), graph.num_words);
    graph_words_ = entry_builder_.CreateAlloca(type, nullptr, "words");
  }
  int64_t word = graph.nodes[place.node].first_word;
  const auto store = [&](llvm::Value* value) {
    builder_.CreateStore(value, address(graph_words_, word++ * 8));
  };
  for (const std::vector<Dim>* sizes : {&op.grid, &op.block}) {
    for (size_t i = 0; i < 3; ++i) store(i < sizes->size() ? dim((*sizes)[i]) : integer(1));
  }
  const Kernel& kernel = program_.kernels().at(op.kernel);
  const std::vector<Value*> operands = op.parameter_operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    llvm::Value* value = parameter_value(operands[i], kernel, i);
    // Equal parameters are equal words: narrow ones fill theirs.
    if (value->getType()->isFloatTy()) value = builder_.CreateBitCast(value, builder_.getInt32Ty());
    if (value->getType()->isIntegerTy()) value = builder_.CreateZExt(value, builder_.getInt64Ty());
    store(value);
  }
  if (place.node + 1 < static_cast<int64_t>(graph.nodes.size())) return;
  llvm::Value* words = std::exchange(graph_words_, nullptr);
  call_fallible(Extern::hostjit_launch_graph, {frame_, integer(place.graph), words});
  for (const int64_t slot : std::exchange(released_with_graph_, {})) {
    call(Extern::hostjit_release, {frame_, integer(slot)});
  }
}

llvm::Value* Dispatcher::launch_config(const LaunchKernel& op,
                                       const std::vector<llvm::Value*>& grid) {
  static_assert(sizeof(CUlaunchConfig) == 56);
  llvm::Value* config = entry_builder_.CreateAlloca(
      llvm::ArrayType::get(builder_.getInt64Ty(), sizeof(CUlaunchConfig) / sizeof(int64_t)),
      nullptr, "config");
  const auto store = [&](llvm::Value* value, size_t offset) {
    builder_.CreateStore(value, address(config, static_cast<int64_t>(offset)));
  };
  std::vector<llvm::Value*> block;
  block.reserve(op.block.size());
  for (const Dim& threads : op.block) block.push_back(dim(threads));
  for (size_t i = 0; i < 3; ++i) {
    const auto size = [&](const std::vector<llvm::Value*>& sizes) {
      return i < sizes.size() ? builder_.CreateTrunc(sizes[i], builder_.getInt32Ty())
                              : static_cast<llvm::Value*>(builder_.getInt32(1));
    };
    store(size(grid), offsetof(CUlaunchConfig, grid) + i * sizeof(uint32_t));
    store(size(block), offsetof(CUlaunchConfig, block) + i * sizeof(uint32_t));
  }
  store(builder_.getInt32(static_cast<uint32_t>(op.shared_memory)),
        offsetof(CUlaunchConfig, shared_memory));
  store(stream_handle(op.stream), offsetof(CUlaunchConfig, stream));
  llvm::Constant* attributes = llvm::Constant::getNullValue(pointer_);
  const std::vector<uint32_t> words = attribute_words(op);
  if (!words.empty()) {
    llvm::Constant* bytes = llvm::ConstantDataArray::get(module_.getContext(), words);
    auto* global = new llvm::GlobalVariable(module_, bytes->getType(), /*isConstant=*/true,
                                            llvm::GlobalValue::PrivateLinkage, bytes, "attributes");
    global->setAlignment(llvm::Align(alignof(CUlaunchAttribute)));
    attributes = global;
  }
  store(attributes, offsetof(CUlaunchConfig, attributes));
  store(builder_.getInt32(
            static_cast<uint32_t>(words.size() * sizeof(uint32_t) / sizeof(CUlaunchAttribute))),
        offsetof(CUlaunchConfig, num_attributes));
  return config;
}

llvm::Value* Dispatcher::launch_parameters(const LaunchKernel& op, const Kernel& kernel) {
  const std::vector<Value*> operands = op.parameter_operands();
  llvm::Value* addresses = entry_builder_.CreateAlloca(
      llvm::ArrayType::get(pointer_, operands.size()), nullptr, "parameters");
  for (size_t i = 0; i < operands.size(); ++i) {
    llvm::Value* value = parameter_value(operands[i], kernel, i);
    llvm::Value* place = entry_builder_.CreateAlloca(value->getType(), nullptr, "parameter");
    builder_.CreateStore(value, place);
    builder_.CreateStore(place, address(addresses, static_cast<int64_t>(i * sizeof(void*))));
  }
  return addresses;
}

}  // namespace hostjit
