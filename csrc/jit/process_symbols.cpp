// SPDX-License-Identifier: Apache-2.0
#include "jit/process_symbols.h"

#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "runtime/externs.h"
#include "runtime/torch_symbols.h"

namespace hostjit {
namespace {

template <class R, class... A>
void* address(R (*function)(A...)) {
  return reinterpret_cast<void*>(function);
}
template <class R, class... A>
void* address(R (*function)(A...) noexcept) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

std::vector<VectorMathVariant> available_variants(
    const std::vector<VectorMathVariant>& candidates) {
  std::vector<VectorMathVariant> available;
  std::set<std::pair<std::string, unsigned>> found;
  for (const VectorMathVariant& candidate : candidates) {
    const auto key = std::make_pair(candidate.scalar_name, candidate.lanes);
    if (found.contains(key) || !find_torch_symbol(candidate.symbol)) continue;
    found.insert(key);
    available.push_back(candidate);
  }
  return available;
}

std::map<std::string, void*> symbol_addresses(const std::vector<VectorMathVariant>& variants) {
  std::map<std::string, void*> symbols;
#define HOSTJIT_EXTERN_ADDRESS(name) symbols[#name] = address(name);
  HOSTJIT_FOR_EACH_EXTERN(HOSTJIT_EXTERN_ADDRESS)
#undef HOSTJIT_EXTERN_ADDRESS
  for (const ScalarMathFunction& function : scalar_math_functions()) {
    symbols[function.name] = function.libm_function;
  }
  for (const VectorMathVariant& variant : variants) {
    symbols[variant.symbol] = find_torch_symbol(variant.symbol);
  }
  // LLVM calls these for intrinsics that are too long for inline code or have no instruction.
  for (const char* name :
       {"memcpy",   "memmove",      "memset",       "memcmp",        "bcmp",         "fmod",
        "fmodf",    "pow",          "powf",         "exp",           "expf",         "exp2",
        "exp2f",    "log",          "logf",         "log2",          "log2f",        "log10",
        "log10f",   "sin",          "sinf",         "cos",           "cosf",         "tan",
        "tanf",     "floor",        "floorf",       "ceil",          "ceilf",        "trunc",
        "truncf",   "rint",         "rintf",        "nearbyint",     "nearbyintf",   "round",
        "roundf",   "roundeven",    "roundevenf",   "fma",           "fmaf",         "fmin",
        "fminf",    "fmax",         "fmaxf",        "ldexp",         "ldexpf",       "sqrt",
        "sqrtf",    "asin",         "asinf",        "acos",          "acosf",        "atan",
        "atanf",    "atan2",        "atan2f",       "sinh",          "sinhf",        "cosh",
        "coshf",    "tanh",         "tanhf",        "sincos",        "sincosf",      "exp10",
        "exp10f",   "frexp",        "frexpf",       "modf",          "modff",        "lround",
        "lroundf",  "llround",      "llroundf",     "lrint",         "lrintf",       "llrint",
        "llrintf",  "__truncsfhf2", "__truncdfhf2", "__extendhfsf2", "__truncsfbf2", "__truncdfbf2",
        "__multi3", "__divti3",     "__modti3",     "__udivti3",     "__umodti3",    "__mulsc3",
        "__muldc3", "__divsc3",     "__divdc3",     "__powisf2",     "__powidf2"}) {
    if (void* found = dlsym(RTLD_DEFAULT, name)) symbols[name] = found;
  }
  return symbols;
}

}  // namespace hostjit
