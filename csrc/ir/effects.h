// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ir/op.h"

namespace hostjit {

struct OperandUse {
  Value* value;
  Access access;
};

// Operands in the order of the fields, with what the op does to their memory.
std::vector<OperandUse> operand_uses(const Op& op);

std::vector<Value*> results_of(const Op& op);

// The operands whose memory a result of `op` may share: a view's source, the operands that an
// ATen call names.
std::vector<Value*> aliased_operands(const Op& op);

// An operand that is read and one that is written, which may be the same memory.
struct InPlacePair {
  Value* read;
  Value* written;
};
std::vector<InPlacePair> in_place_pairs(const Op& op);

// Whether the op itself touches memory of CUDA devices: it gives work to a stream.
bool works_on_cuda(const Op& op);

// Whether a result is a number out of memory, which may be another one at every call.
bool reads_number(const Op& op);

bool has_regions(const Op& op);

// Its ops and those of the regions inside. Ops are numbered in the order of the text.
int64_t num_nodes(const Region& region);

// True when the op may go if nobody uses its results and the memory it writes.
bool is_removable(const Op& op);

}  // namespace hostjit
