// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "codegen/extern_signature.h"
#include "codegen/kernel_linker.h"
#include "codegen/open_product.h"
#include "codegen/product.h"
#include "codegen/product_kernels.h"
#include "codegen/storage.h"
#include "ir/program.h"

namespace hostjit {

// Emits the functions of a program: one member `emit` per op, in the file of its family. An op
// without one does not compile.
class Dispatcher {
 public:
  Dispatcher(const Program& program, const StoragePlan& storage, KernelLinker& kernels,
             ProductKernels& products, llvm::Module& module);

  // Before emit_main: main notes when each node is done, as generate() says.
  void time_nodes(const std::string& symbol);
  // Both make a function of type MainFunction. finish comes after them.
  void emit_main(const std::string& symbol);
  void emit_init(const std::string& symbol);
  void finish() {
    mark_kernel_operands();
    kernels_.drop_unused();
  }

 private:
  // memory.cpp
  void emit(const Allocate& op);
  void emit(const Deallocate& op);
  void emit(const Copy& op);
  void emit(const Fill& op);
  void emit(const Constant& op);
  void emit(const Item& op);
  // shape.cpp
  void emit(const View& op);
  void emit(const Select& op);
  void emit(const Size& op);
  void emit(const IndexConstant& op);
  void emit(const FloatConstant& op);
  void emit(const IndexBinary& op);
  // launch.cpp
  void emit(const LaunchKernel& op);
  // math.cpp
  void emit(const Matmul& op);
  void emit(const Linear& op);
  void emit(const Bmm& op);
  void emit(const Addmm& op);
  void emit(const Baddbmm& op);
  // aten.cpp
  void emit(const AtenCall& op);
  // control.cpp
  void emit(const For& op);
  void emit(const While& op);
  void emit(const If& op);
  // streams.cpp
  void emit(const CurrentStream& op);
  void emit(const PoolStream& op);
  void emit(const SetStream& op);
  void emit(const RecordEvent& op);
  void emit(const WaitEvent& op);
  void emit(const Synchronize& op);
  // profiling.cpp
  void emit(const RangePush& op);
  void emit(const RangePop& op);
  // Does nothing unless nodes are timed.
  void note_time(size_t index);
  void note_device_time(const Op& op, size_t event);
  void read_device_times();

  // dispatcher.cpp: the frame of a function
  void begin_function(const std::string& name);
  void end_function();
  void emit_region(const Region& region);
  void emit_body();
  void emit_op(const Op& op);
  // Scalars of init that body uses: they cost nothing to compute again.
  void emit_init_scalars();
  void emit_outputs();

  // operands.cpp
  llvm::Value* frame_field(size_t offset, llvm::Type* type, const char* name);
  // The address of the first element.
  llvm::Value* data(const Value* value);
  // The at::Tensor*.
  llvm::Value* header(const Value* value);
  llvm::Value* slot_header(int64_t slot);
  // i64 for index and bool, double for f64.
  llvm::Value* scalar(const Value* value);
  // A field of the struct that inputs[index] points at; loaded once, at entry.
  llvm::Value* input_field(int64_t index, size_t offset, llvm::Type* type);
  llvm::Value* integer(int64_t value);
  llvm::Value* address(llvm::Value* base, int64_t bytes);
  // A number of the frame's row; loaded once, at entry.
  llvm::Value* row_value(size_t index);

  // shape.cpp: the tensor of a view, where somebody needs one.
  void emit_view_header(const Value* view);

  // sizes.cpp: constants, or what the row says.
  llvm::Value* dim(const Dim& dim);
  std::vector<llvm::Value*> sizes(const TensorType& type);
  std::vector<llvm::Value*> strides(const TensorType& type);
  llvm::Value* num_elements(const TensorType& type);
  // Of the memory of a contiguous type.
  llvm::Value* num_bytes(const TensorType& type);
  // Bytes from the base of the storage to its first element.
  llvm::Value* offset(const Storage& storage);
  llvm::Value* offset(const Storage::Term& term);
  // Alignment of the first element that holds on every call.
  llvm::Align alignment(const Value* value) const;

  // dispatcher.cpp: calls
  llvm::CallInst* call(Extern name, llvm::ArrayRef<llvm::Value*> arguments);
  // Goes to the cleanup block when the call returns non-zero.
  void call_fallible(Extern name, llvm::ArrayRef<llvm::Value*> arguments);
  void branch_to_cleanup_if(llvm::Value* condition);
  void note_node();
  llvm::Value* string_constant(std::string_view text);

  // To be called before generated code writes to a value: an input's version counter moves.
  void announce_write(const Value* value);

  // dispatcher.cpp: control flow
  void emit_if(llvm::Value* condition, const std::function<void()>& then);
  // Records `message` with the frame and goes to the cleanup block.
  void emit_failure_if(llvm::Value* condition, const std::string& message);

  // dispatcher.cpp: slots whose tensors this call made and still holds. `root` owns the memory.
  void slot_made(int64_t slot, const Value* root);
  void release_slot(int64_t slot);
  bool is_made_by_code(int64_t slot) const;
  llvm::Value* load_slot_data(llvm::IRBuilder<>& builder, int64_t slot);

  // memory.cpp
  void emit_copy_loops(const Copy& op);
  void emit_copy_by_size(const Copy& op);
  std::vector<llvm::Value*> broadcast_strides(const TensorType& type, const TensorType& out);
  // device.cpp: what comes first in a function of a program that uses a CUDA device.
  void begin_device();
  void emit_device_launch(const LaunchKernel& op);
  // Describes the launch to its graph, which the last one launches.
  void emit_graph_node(const LaunchKernel& op);
  // A pointer to the CUlaunchConfig of a launch.
  llvm::Value* launch_config(const LaunchKernel& op, const std::vector<llvm::Value*>& grid);
  // A pointer to the addresses of the parameters.
  llvm::Value* launch_parameters(const LaunchKernel& op, const Kernel& kernel);

  // streams.cpp
  // Whether work may be on others than the caller's.
  bool uses_streams() const { return storage_.layout().num_streams > 0; }
  // What comes first in main, and behind the body.
  void enter_streams();
  void leave_streams();
  void set_stream(int64_t number);
  // Of a value, or of the current stream without one.
  int64_t stream_number(const Value* stream) const;
  llvm::Value* stream_handle(const Value* stream);
  // Releases the slots from position `first` of released_behind_streams_ on.
  void release_behind_streams(size_t first);

  // launch.cpp: what a kernel for the CPU is called with, without failure record and range.
  std::vector<llvm::Value*> kernel_arguments(const LaunchKernel& op);
  // Of a kernel with a signature.
  llvm::Value* parameter_value(const Value* operand, const Kernel& kernel, size_t parameter);
  // Positions of an output and of the input whose memory it has at this launch.
  using InPlaceOperands = std::vector<std::pair<unsigned, unsigned>>;
  InPlaceOperands operands_in_place(const LaunchKernel& op) const;
  void note_launch(const LaunchKernel& op, llvm::Function* kernel, const InPlaceOperands& in_place);
  void mark_kernel_operands();
  // A product and the launch that goes on with it, as one function: that of the product, whose
  // parameters are followed by those of the launch.
  struct Fused {
    Product product;
    llvm::Function* function = nullptr;
  };
  void fuse_epilogues();
  void emit_fused(const Fused& fused, std::vector<llvm::Value*> operands);
  // Where a kernel says that it failed, and the way out when it did.
  llvm::Value* make_failure_record();
  void check_failure_record(const LaunchKernel& op, llvm::Value* record);
  llvm::Value* scalar_in_memory(const Value* value);  // aten.cpp

  // control.cpp
  // What a region made and still holds is released at its end.
  void emit_nested(const Region& region);
  llvm::Value* load_bool(llvm::Value* address);
  llvm::BasicBlock* make_block(const char* name);

  // parallel.cpp: calls `kernel` with `arguments` and then a range of [0, num_items), from as many
  // threads as get at least `grain` items.
  void emit_parallel_call(llvm::Function* kernel, llvm::ArrayRef<llvm::Value*> arguments,
                          llvm::Value* num_items, llvm::Value* grain);

  // math.cpp
  // By generated code, where symbols allow it, or whoever means_of says. `aten` emits the call of
  // ATen.
  template <class ProductOp>
  void emit_product_of(const ProductOp& op, const std::function<void()>& aten);
  template <class SumOp>
  void emit_sum(const SumOp& op, Extern library);
  void emit_product(const Product& product, const std::function<void()>& aten);
  void emit_addend(const Product& product);
  // open_products.cpp
  void emit_open_product(const OpenProduct& open);
  llvm::Value* num_rows(const OpenProduct& open);
  void emit_blas(const Product& product, llvm::Value* lhs, llvm::Value* rhs, llvm::Value* out);

  const Program& program_;
  const StoragePlan& storage_;
  KernelLinker& kernels_;
  ProductKernels& products_;
  llvm::Module& module_;
  llvm::IRBuilder<> builder_;
  llvm::IRBuilder<> entry_builder_;  // loads that happen once, before everything else
  llvm::Type* pointer_;
  llvm::GlobalVariable* constants_ = nullptr;
  llvm::GlobalVariable* node_times_ = nullptr;  // null: nodes are not timed

  // Per kernel and pointer operand: written, and apart from all others at every launch.
  std::map<llvm::Function*, std::vector<bool>> kernel_operands_apart_;

  // Of the function under way.
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* cleanup_ = nullptr;
  llvm::Value* frame_ = nullptr;
  llvm::Value* stream_ = nullptr;  // the caller's; null without a device
  int64_t current_stream_ = 0;     // its number, as DeviceStreams counts
  std::unordered_map<const Value*, int64_t> stream_numbers_;
  std::vector<int64_t> released_behind_streams_;
  llvm::Value* device_arena_ = nullptr;
  // Of the graph whose launches are being described, null between graphs: its words, and the slots
  // that are released when it is launched. What was released before could be used again by a part
  // of the graph.
  llvm::Value* graph_words_ = nullptr;
  std::vector<int64_t> released_with_graph_;
  int64_t node_ = 0;
  std::unordered_map<size_t, llvm::Value*> frame_fields_;
  std::map<std::pair<int64_t, size_t>, llvm::Value*> input_fields_;
  std::unordered_map<size_t, llvm::Value*> row_values_;
  std::unordered_map<int64_t, llvm::Value*> slot_data_;
  std::unordered_map<const Value*, llvm::Value*> scalars_;
  std::map<int64_t, const Value*> live_slots_;  // with the root of each
  std::unordered_map<const LaunchKernel*, Fused> fused_;
  std::unordered_set<const Value*> made_later_;  // results of these products
  std::vector<llvm::Value*> open_ranges_;        // whether each range was opened
};

}  // namespace hostjit
