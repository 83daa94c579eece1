// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hostjit {

// X(enumerator, name in Host IR, whether it is code for CUDA devices)
#define HOSTJIT_FOR_EACH_KERNEL_LANGUAGE(X)  \
  X(kLlvmIr, "llvm_ir", false)               \
  X(kSharedLibrary, "shared_library", false) \
  X(kCFunction, "c_function", false)         \
  X(kPtx, "ptx", true)                       \
  X(kCubin, "cubin", true)                   \
  X(kCudaFunction, "cuda_function", true)

enum class KernelLanguage : uint8_t {
#define HOSTJIT_KERNEL_LANGUAGE_ENUMERATOR(enumerator, name, is_cuda) enumerator,
  HOSTJIT_FOR_EACH_KERNEL_LANGUAGE(HOSTJIT_KERNEL_LANGUAGE_ENUMERATOR)
#undef HOSTJIT_KERNEL_LANGUAGE_ENUMERATOR
};
std::string_view to_string(KernelLanguage language);
bool is_cuda(KernelLanguage language);
// Throws Error that lists the names.
KernelLanguage kernel_language_from_string(std::string_view name);

// Of one parameter of a kernel with a signature. X(enumerator, name, bytes)
#define HOSTJIT_FOR_EACH_PARAMETER_TYPE(X) \
  X(kPointer, "ptr", 8)                    \
  X(kI8, "i8", 1)                          \
  X(kI16, "i16", 2)                        \
  X(kI32, "i32", 4)                        \
  X(kI64, "i64", 8)                        \
  X(kF32, "f32", 4)                        \
  X(kF64, "f64", 8)

enum class ParameterType : uint8_t {
#define HOSTJIT_PARAMETER_TYPE_ENUMERATOR(enumerator, name, bytes) enumerator,
  HOSTJIT_FOR_EACH_PARAMETER_TYPE(HOSTJIT_PARAMETER_TYPE_ENUMERATOR)
#undef HOSTJIT_PARAMETER_TYPE_ENUMERATOR
};
std::string_view to_string(ParameterType type);
int64_t size_in_bytes(ParameterType type);
ParameterType parameter_type_from_string(std::string_view name);
// Whether an integer fits a parameter of an integer type, signed or unsigned.
bool holds(ParameterType type, int64_t value);
// The bits of a parameter of type f32 or f64.
uint64_t float_bits(double value, ParameterType type);

// A kernel that a program brings. For the CPU: LLVM IR that defines
// `void @<name>(ptr..., scalars...)`; or the path of a shared library with a C function `entry`,
// which takes the same and does not throw. The library is opened when the program is compiled, and
// stays open. For CUDA: code with a function `entry`, or the CUfunction that somebody else has
// loaded, which is good for this process and one context.
//
// Kernels that users bring have a signature: those for CUDA, and for the CPU LLVM IR that defines
// `void @<entry>(...)` or a C function of this process. Its parameters are in an order and of types
// of their own, and a launch says which operands they are.
struct Kernel {
  std::string name;
  // The code; bytes, not text, of a cubin. Of a function of this process its address, as "0x7f00".
  std::string text;
  KernelLanguage language = KernelLanguage::kLlvmIr;
  // The function, in any language but LLVM IR without a signature.
  std::string entry = {};
  // Of a kernel with a signature, without the range of items: see LaunchKernel.
  std::vector<ParameterType> parameters = {};
  // Whose destruction may end the life of a function of this process.
  std::shared_ptr<void> owner = nullptr;

  friend bool operator==(const Kernel&, const Kernel&) = default;
};

bool has_signature(const Kernel& kernel);
// Whether its text is the address of a function of this process.
bool is_address(KernelLanguage language);
// The address of the function that a kernel is. Throws Error if its text is none.
uint64_t function_address(const Kernel& kernel);

}  // namespace hostjit
