// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/ADT/StringRef.h>

#include <set>
#include <string>
#include <vector>

namespace llvm {
class Module;
}

namespace hostjit {

// X(name, Sleef's accuracy suffix, arity). Kernels call the scalar form hostjit_<name>_f32 or
// hostjit_<name>_f64; python/hostjit/kernels/vector_math.py has the same list.
#define HOSTJIT_FOR_EACH_VECTOR_MATH_FUNCTION(X) \
  X(exp, "_u10", 1)                              \
  X(exp2, "_u10", 1)                             \
  X(expm1, "_u10", 1)                            \
  X(log, "_u10", 1)                              \
  X(log1p, "_u10", 1)                            \
  X(log2, "_u10", 1)                             \
  X(log10, "_u10", 1)                            \
  X(sin, "_u10", 1)                              \
  X(cos, "_u10", 1)                              \
  X(tan, "_u10", 1)                              \
  X(asin, "_u10", 1)                             \
  X(acos, "_u10", 1)                             \
  X(atan, "_u10", 1)                             \
  X(sinh, "_u10", 1)                             \
  X(cosh, "_u10", 1)                             \
  X(tanh, "_u10", 1)                             \
  X(asinh, "_u10", 1)                            \
  X(acosh, "_u10", 1)                            \
  X(atanh, "_u10", 1)                            \
  X(erf, "_u10", 1)                              \
  X(erfc, "_u15", 1)                             \
  X(lgamma, "_u10", 1)                           \
  X(tgamma, "_u10", 1)                           \
  X(atan2, "_u10", 2)                            \
  X(pow, "_u10", 2)                              \
  X(hypot, "_u05", 2)                            \
  X(fmod, "", 2)

// The vector registers that the code may use for calls.
struct VectorIsa {
  std::string sleef_suffix;  // of the symbols for exactly this instruction set, e.g. "avx512f"
  unsigned bits = 0;
};

// One form of a function that takes `lanes` elements at once.
struct VectorMathVariant {
  std::string scalar_name;  // hostjit_exp_f32
  std::string symbol;       // Sleef_expf16_u10avx512f
  unsigned lanes = 0;
  unsigned arity = 0;
  bool is_f64 = false;
};

// Every variant for these instruction sets that could exist, the better of each lane count first.
std::vector<VectorMathVariant> vector_math_candidates(const std::vector<VectorIsa>& isas);

// The scalar names, each with the function of libm that has its meaning.
struct ScalarMathFunction {
  std::string name;
  void* libm_function = nullptr;
  unsigned arity = 0;
  bool is_f64 = false;
};
const std::vector<ScalarMathFunction>& scalar_math_functions();

// True for the name of a scalar form.
bool is_vector_math(llvm::StringRef name);

// Declares `variants` of the scalar functions that `module` uses, and maps the scalar calls to
// them, so that the vectoriser may take them. To be done before optimisation.
void attach_vector_math(llvm::Module& module, const std::vector<VectorMathVariant>& variants);

// Defines the scalar functions that calls are left of as lane 0 of their narrowest vector variant,
// so that an element's result does not depend on its position. To be done after optimisation.
void define_scalar_math(llvm::Module& module, const std::vector<VectorMathVariant>& variants);

}  // namespace hostjit
