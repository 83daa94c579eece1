// SPDX-License-Identifier: Apache-2.0
// Modules of the null device and their functions.

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "runtime/null_cuda_state.h"

namespace hostjit::cuda {
namespace {

// Bytes of a parameter of PTX, such as ".param .align 8 .b8 name[24]".
size_t bytes_of_parameter(std::string_view text) {
  const size_t bracket = text.find('[');
  if (bracket != std::string_view::npos)
    return std::strtoull(text.data() + bracket + 1, nullptr, 10);
  for (const char* kind : {".u", ".s", ".b", ".f"}) {
    for (const size_t bytes : {8, 4, 2, 1}) {
      if (text.find(concat(kind, 8 * bytes, " ")) != std::string_view::npos) return bytes;
    }
  }
  return 8;
}

// The kernels of PTX.
std::map<std::string, CUfunc_st> read_entries(std::string_view text) {
  std::map<std::string, CUfunc_st> functions;
  constexpr std::string_view kEntry = ".entry ";
  for (size_t at = text.find(kEntry); at != std::string_view::npos; at = text.find(kEntry, at)) {
    at += kEntry.size();
    const size_t open = text.find('(', at);
    const size_t close = text.find(')', at);
    if (open == std::string_view::npos || close == std::string_view::npos) break;
    CUfunc_st function;
    const std::string_view name = text.substr(at, open - at);
    function.name = name.substr(0, name.find_first_of(" \n\t"));
    std::string_view list = text.substr(open + 1, close - open - 1);
    for (size_t next = list.find(".param"); next != std::string_view::npos;) {
      list.remove_prefix(next + 6);
      next = list.find(".param");
      function.parameter_bytes.push_back(bytes_of_parameter(list.substr(0, next)));
    }
    functions.emplace(function.name, std::move(function));
  }
  return functions;
}

}  // namespace

CUresult NullCuda::State::load(CUmodule* module, const char* image) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUmod_st>();
  made->device = current_context()->device;
  made->functions = read_entries(image);
  if (made->functions.empty()) return CUDA_ERROR_INVALID_IMAGE;
  for (auto& [name, function] : made->functions) function.module = made.get();
  *module = made.get();
  modules_[*module] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::unload(CUmodule module) {
  return modules_.erase(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult NullCuda::State::find_function(CUfunction* function, CUmodule module,
                                        const std::string& name) {
  if (!modules_.contains(module)) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = module->functions.find(name);
  if (found == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *function = &found->second;
  return CUDA_SUCCESS;
}

bool NullCuda::State::is_function(CUfunction function) const {
  return std::ranges::any_of(modules_, [&](const auto& module) {
    return std::ranges::any_of(module.second->functions,
                               [&](const auto& known) { return &known.second == function; });
  });
}

CUresult NullCuda::State::parameter(CUfunction function, size_t index, size_t* offset,
                                    size_t* size) {
  if (!is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= function->parameter_bytes.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (size_t i = 0; i <= index; ++i) {
    const size_t bytes = function->parameter_bytes[i];
    const size_t alignment = std::min<size_t>(8, bytes);
    *offset = (*offset + alignment - 1) / alignment * alignment;
    if (i < index) *offset += bytes;
  }
  *size = function->parameter_bytes[index];
  return CUDA_SUCCESS;
}

}  // namespace hostjit::cuda
