// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one list of ops. X(Type): a struct in ir/*_ops.h with
//   kInfo                        name, one-line doc, side effect
//   fields(self, visit)          operands with their access, attributes, results
//   verify(OpVerifier&) const    what must hold beyond the fields
// Every member has an initialiser, so that Linear{.input = x, .out = y} may leave any out.
// The variant, the names, the visitors, the printer, the parser, the Python attributes and the
// reference page come from it; evaluator and code generator fail to compile without a case.
#define HOSTJIT_FOR_EACH_OP(X) \
  /* memory */                 \
  X(Allocate)                  \
  X(Deallocate)                \
  X(Copy)                      \
  X(Fill)                      \
  X(Constant)                  \
  X(Item)                      \
  /* shape */                  \
  X(View)                      \
  X(Select)                    \
  X(Size)                      \
  X(IndexConstant)             \
  X(IndexBinary)               \
  X(FloatConstant)             \
  /* launch */                 \
  X(LaunchKernel)              \
  /* math library */           \
  X(Matmul)                    \
  X(Linear)                    \
  X(Bmm)                       \
  X(Addmm)                     \
  X(Baddbmm)                   \
  /* ATen */                   \
  X(AtenCall)                  \
  /* control */                \
  X(For)                       \
  X(While)                     \
  X(If)                        \
  /* stream */                 \
  X(CurrentStream)             \
  X(PoolStream)                \
  X(SetStream)                 \
  X(RecordEvent)               \
  X(WaitEvent)                 \
  X(Synchronize)               \
  /* profiling */              \
  X(RangePush)                 \
  X(RangePop)
