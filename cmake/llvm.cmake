# SPDX-License-Identifier: Apache-2.0
# Finds LLVM 19 or newer and makes it the target hostjit_llvm: -DLLVM_DIR, or else the static
# libraries of the Python package mlc-llvm-static.
if(NOT LLVM_DIR)
  execute_process(COMMAND "${Python_EXECUTABLE}" -m mlc_llvm_static.config --prefix
                  OUTPUT_VARIABLE llvm_prefix RESULT_VARIABLE llvm_status
                  ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(llvm_status EQUAL 0)
    # The prefix also holds the zlib and zstd that LLVM's exports ask for.
    list(PREPEND CMAKE_PREFIX_PATH "${llvm_prefix}")
    set(ZLIB_ROOT "${llvm_prefix}")
    set(ZLIB_USE_STATIC_LIBS ON)
    set(LLVM_DIR "${llvm_prefix}/lib/cmake/llvm")
  endif()
endif()
find_package(LLVM CONFIG)
if(NOT LLVM_FOUND)
  message(FATAL_ERROR "LLVM was not found. Install the Python package mlc-llvm-static==23.1.1.post0 "
                      "for ${Python_EXECUTABLE}, or give -DLLVM_DIR=<prefix>/lib/cmake/llvm of "
                      "LLVM 19 or newer.")
elseif(LLVM_VERSION_MAJOR LESS 19)
  message(FATAL_ERROR "hostjit needs LLVM 19 or newer, found ${LLVM_VERSION} in ${LLVM_DIR}")
endif()
message(STATUS "LLVM: ${LLVM_VERSION} (${LLVM_DIR})")

llvm_map_components_to_libnames(llvm_libraries core support target irreader bitreader bitwriter linker
                                passes orcjit orcdebugging native)
add_library(hostjit_llvm INTERFACE)
target_include_directories(hostjit_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
separate_arguments(llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_options(hostjit_llvm INTERFACE ${llvm_definitions})
target_link_libraries(hostjit_llvm INTERFACE ${llvm_libraries})
