// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda_driver.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

namespace hostjit::cuda {
namespace {

// What there is from this version on is asked for; what came later is looked for where it is used.
constexpr int32_t kOldest = 12000;

using GetProcAddress = CUresult (*)(const char* symbol, void** function, int32_t version,
                                    uint64_t flags, int32_t* status);

std::atomic<const Driver*> in_use{nullptr};

std::string dotted(int32_t version) { return concat(version / 1000, ".", version % 1000 / 10); }

Driver load() {
  // Stays loaded: generated code has its addresses.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  HOSTJIT_CHECK(library, "CUDA: no driver, libcuda.so.1 can't be loaded (", dlerror(), ")");
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  HOSTJIT_CHECK(get,
                "CUDA: the driver is too old, it has no cuGetProcAddress_v2; expected one for ",
                "CUDA ", dotted(kOldest), " or later");
  Driver table;
  const auto find = [&](const char* name, int32_t version, auto& function) {
    void* found = nullptr;
    int32_t status = 0;
    if (get(name, &found, version, /*flags=*/0, &status) != CUDA_SUCCESS) found = nullptr;
    HOSTJIT_CHECK(found || version > kOldest, "CUDA: the driver is too old, it has no ", name,
                  " of CUDA ", dotted(version), "; expected one for CUDA ", dotted(kOldest),
                  " or later");
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
#define HOSTJIT_CUDA_FIND(name, version, parameters) find(#name, version, table.name);
  HOSTJIT_FOR_EACH_CUDA_FUNCTION(HOSTJIT_CUDA_FIND)
#undef HOSTJIT_CUDA_FIND
  const CUresult result = table.cuInit(0);
  if (result != CUDA_SUCCESS) {
    const char* name = nullptr;
    const char* text = nullptr;
    table.cuGetErrorName(result, &name);
    table.cuGetErrorString(result, &text);
    throw DriverError(result, concat("CUDA: cuInit: ", name ? name : "unknown error", " (",
                                     text ? text : "", ")"));
  }
  return table;
}

}  // namespace

const Driver& driver() {
  if (const Driver* table = in_use.load(std::memory_order_acquire)) return *table;
  // Thread-safe; done again where it has thrown.
  static const Driver kLoaded = load();
  const Driver* nobody = nullptr;
  in_use.compare_exchange_strong(nobody, &kLoaded);
  return *in_use.load();
}

void use_driver(const Driver& table) {
  const Driver* nobody = nullptr;
  HOSTJIT_CHECK(in_use.compare_exchange_strong(nobody, &table) || nobody == &table,
                "the process uses another CUDA driver already");
}

void check(CUresult result, const char* function) {
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  const char* name = nullptr;
  const char* text = nullptr;
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &text);
  throw DriverError(result, concat(function, ": ", name ? name : concat("error ", result), " (",
                                   text ? text : "unknown", ")"));
}

}  // namespace hostjit::cuda
