# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers, linker and compiler cache for every target.
include(CheckLinkerFlag)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(HOSTJIT_CCACHE ccache)
  if(HOSTJIT_CCACHE)
    # Else ccache passes over sources that have a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros "${HOSTJIT_CCACHE}")
  endif()
endif()

# hostjit_precompile_headers(target headers...) is for headers of others that most sources include.
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without: sources include what they use.
function(hostjit_precompile_headers target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  # What ccache hashes then names the precompiled header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# Usage requirements of hostjit's own targets; third-party code is not held to them.
add_library(hostjit_options INTERFACE)
target_include_directories(hostjit_options INTERFACE "${PROJECT_SOURCE_DIR}/csrc")
# GCC's optimiser reports maybe-uninitialized inside headers of PyTorch and LLVM that it inlined.
target_compile_options(hostjit_options INTERFACE -Wall -Wextra
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
                       $<$<BOOL:${HOSTJIT_WERROR}>:-Werror>)
add_compile_options(-ffunction-sections -fdata-sections)

if(HOSTJIT_SANITIZE)
  # LLVM is built without RTTI, which the vptr check needs.
  # What instrumentation adds to the code is not worth O2: O1 compiles in two thirds of the time.
  add_compile_options(-O1 -fsanitize=${HOSTJIT_SANITIZE} -fno-sanitize=vptr
                      -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${HOSTJIT_SANITIZE})
endif()

# Every binary links LLVM statically, so the linker shows in an incremental build: two links take
# 0.5 s with mold, 0.8 s with lld, 3.5 s with GNU ld. gold is passed over: its version scripts leave
# thread-local symbols in the dynamic symbol table.
set(hostjit_linkers ${HOSTJIT_LINKER})
if(HOSTJIT_LINKER STREQUAL "auto")
  set(hostjit_linkers mold lld)
endif()
foreach(linker IN LISTS hostjit_linkers)
  check_linker_flag(CXX "-fuse-ld=${linker}" HOSTJIT_HAS_LINKER_${linker})
  if(HOSTJIT_HAS_LINKER_${linker})
    add_link_options("-fuse-ld=${linker}")
    message(STATUS "Linker: ${linker}")
    break()
  elseif(NOT HOSTJIT_LINKER STREQUAL "auto")
    message(FATAL_ERROR "HOSTJIT_LINKER=${linker} is not usable with ${CMAKE_CXX_COMPILER}")
  endif()
endforeach()
add_link_options("-Wl,--gc-sections")
# Tells builds apart: objects that one left in the cache are not for another.
add_link_options("-Wl,--build-id=sha1")
