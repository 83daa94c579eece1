# SPDX-License-Identifier: Apache-2.0
# Finds the PyTorch of the Python interpreter and makes it the target hostjit_torch.
#
# find_package(Torch) is not used: with a CUDA build of PyTorch it asks for the CUDA toolkit, and it
# adds flags of its own. hostjit needs the headers and three libraries, which every build has.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
          "import os, torch; print(os.path.dirname(torch.__file__), torch.__version__, \
int(torch._C._GLIBCXX_USE_CXX11_ABI), sep=';')"
  OUTPUT_VARIABLE torch_facts ERROR_VARIABLE torch_error RESULT_VARIABLE torch_status
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT torch_status EQUAL 0)
  message(FATAL_ERROR "hostjit builds against an installed PyTorch, and ${Python_EXECUTABLE} cannot "
                      "import torch:\n${torch_error}\nInstall torch 2.11 to 2.15 there, and build "
                      "with 'pip install --no-build-isolation'.")
endif()
list(GET torch_facts 0 HOSTJIT_TORCH_ROOT)
list(GET torch_facts 1 HOSTJIT_TORCH_VERSION)
list(GET torch_facts 2 torch_cxx11_abi)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_release "${HOSTJIT_TORCH_VERSION}")
if(torch_release VERSION_LESS 2.11)
  message(FATAL_ERROR "hostjit needs torch 2.11 to 2.15, found ${HOSTJIT_TORCH_VERSION}")
elseif(torch_release VERSION_GREATER 2.15)
  message(WARNING "hostjit is tested with torch 2.11 to 2.15, found ${HOSTJIT_TORCH_VERSION}")
endif()
message(STATUS "PyTorch: ${HOSTJIT_TORCH_VERSION} (${HOSTJIT_TORCH_ROOT})")

set(HOSTJIT_TORCH_LIB "${HOSTJIT_TORCH_ROOT}/lib")
add_compile_definitions(_GLIBCXX_USE_CXX11_ABI=${torch_cxx11_abi})

add_library(hostjit_torch INTERFACE)
target_include_directories(hostjit_torch SYSTEM INTERFACE
                           "${HOSTJIT_TORCH_ROOT}/include"
                           "${HOSTJIT_TORCH_ROOT}/include/torch/csrc/api/include")
# Vector math is looked up in libtorch_cpu at run time, so it stays needed even where the linker sees
# no use. What the libraries of a CUDA build need themselves is found by their own run paths.
target_link_libraries(hostjit_torch INTERFACE
                      "-Wl,--no-as-needed,${HOSTJIT_TORCH_LIB}/libtorch_cpu.so"
                      "${HOSTJIT_TORCH_LIB}/libc10.so")
target_link_options(hostjit_torch INTERFACE "-Wl,--allow-shlib-undefined")

add_library(hostjit_torch_python INTERFACE)
target_link_libraries(hostjit_torch_python INTERFACE hostjit_torch
                      "${HOSTJIT_TORCH_LIB}/libtorch_python.so")

# PyTorch brings the pybind11 that its own headers were written against. A translation unit must not
# see two, so the module uses that one; only a PyTorch packaged without it needs the pip package.
if(NOT EXISTS "${HOSTJIT_TORCH_ROOT}/include/pybind11/pybind11.h")
  find_package(pybind11 CONFIG)
  if(NOT pybind11_FOUND)
    execute_process(COMMAND "${Python_EXECUTABLE}" -m pybind11 --cmakedir
                    OUTPUT_VARIABLE pybind11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
    find_package(pybind11 REQUIRED CONFIG)
  endif()
  target_include_directories(hostjit_torch_python SYSTEM INTERFACE ${pybind11_INCLUDE_DIRS})
endif()
