// SPDX-License-Identifier: Apache-2.0
// Sizes, strides and offsets: constants where the program has them, or what the frame's row says.
#include "codegen/dispatcher.h"

namespace hostjit {

llvm::Value* Dispatcher::dim(const Dim& dim) {
  if (dim.is_constant()) return integer(dim.value);
  return row_value(storage_.symbols().at(dim.symbol));
}

std::vector<llvm::Value*> Dispatcher::sizes(const TensorType& type) {
  std::vector<llvm::Value*> values;
  values.reserve(type.dims.size());
  for (const Dim& size : type.dims) values.push_back(dim(size));
  return values;
}

std::vector<llvm::Value*> Dispatcher::strides(const TensorType& type) {
  std::vector<llvm::Value*> values;
  values.reserve(type.dims.size());
  if (type.strides.size() == type.dims.size()) {
    for (const Dim& stride : type.strides) values.push_back(dim(stride));
    return values;
  }
  // No element has an index other than 0 where a size is 0.
  values.resize(type.dims.size());
  llvm::Value* stride = integer(1);
  for (size_t i = type.dims.size(); i-- > 0;) {
    values[i] = stride;
    stride = builder_.CreateMul(stride, dim(type.dims[i]));
  }
  return values;
}

llvm::Value* Dispatcher::num_elements(const TensorType& type) {
  llvm::Value* count = integer(1);
  for (const Dim& size : type.dims) count = builder_.CreateMul(count, dim(size));
  return count;
}

llvm::Value* Dispatcher::num_bytes(const TensorType& type) {
  return builder_.CreateMul(num_elements(type), integer(size_in_bytes(type.dtype)));
}

llvm::Value* Dispatcher::offset(const Storage& storage) {
  llvm::Value* bytes = integer(storage.offset);
  if (storage.block >= 0) {
    const auto block = static_cast<size_t>(storage.block);
    bytes = builder_.CreateAdd(row_value(storage_.symbols().size() + block), bytes);
  }
  for (const Storage::Term& term : storage.terms) {
    bytes = builder_.CreateAdd(bytes, offset(term));
  }
  return bytes;
}

llvm::Value* Dispatcher::offset(const Storage::Term& term) {
  if (!term.select) {
    return builder_.CreateMul(dim(Dim::make_symbol(term.symbol)), integer(term.bytes));
  }
  llvm::Value* step = integer(term.bytes);
  const TensorType& source = term.select->source->tensor_type();
  if (!term.stride_is_known) step = builder_.CreateMul(step, strides(source)[0]);
  return builder_.CreateMul(scalar(term.select->index), step);
}

}  // namespace hostjit
