# SPDX-License-Identifier: Apache-2.0
# GoogleTest and Google Benchmark: from sources under HOSTJIT_TEST_DEPENDENCIES, or else installed.
#
# Sources are preferred, because then they are compiled with the same flags and sanitizers.
set(HOSTJIT_TEST_DEPENDENCIES "" CACHE PATH
    "Folder with the source trees googletest and google-benchmark (make fills one)")

function(hostjit_add_test_dependency folder target package hint)
  if(IS_DIRECTORY "${HOSTJIT_TEST_DEPENDENCIES}/${folder}")
    add_subdirectory("${HOSTJIT_TEST_DEPENDENCIES}/${folder}" "${CMAKE_BINARY_DIR}/${folder}"
                     EXCLUDE_FROM_ALL SYSTEM)
  else()
    find_package(${package} QUIET)
  endif()
  if(NOT TARGET ${target})
    message(FATAL_ERROR "${package} was not found: run make, which fetches it, or install ${hint}.")
  endif()
endfunction()

if(HOSTJIT_BUILD_TESTS)
  set(BUILD_GMOCK OFF CACHE BOOL "" FORCE)
  set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
  hostjit_add_test_dependency(googletest GTest::gtest_main GTest libgtest-dev)
endif()
if(HOSTJIT_BUILD_BENCH)
  foreach(feature TESTING GTEST_TESTS WERROR INSTALL INSTALL_DOCS)
    set(BENCHMARK_ENABLE_${feature} OFF CACHE BOOL "" FORCE)
  endforeach()
  hostjit_add_test_dependency(google-benchmark benchmark::benchmark benchmark libbenchmark-dev)
endif()
