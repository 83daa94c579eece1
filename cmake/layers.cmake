# SPDX-License-Identifier: Apache-2.0
# hostjit_add_layer(name uses...) makes csrc/<name>/*.cpp the static library hostjit_<name>.
#
# `uses` names other layers or the targets hostjit_llvm and hostjit_torch. A folder without sources
# gives an empty interface library.
function(hostjit_add_layer name)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/csrc/${name}/*.cpp")
  set(scope PUBLIC)
  if(sources)
    add_library(hostjit_${name} STATIC ${sources})
    target_link_libraries(hostjit_${name} PUBLIC hostjit_options)
    if("hostjit_llvm" IN_LIST ARGN)
      # LLVM is built without RTTI; a class that derives from one of LLVM's must be, too.
      target_compile_options(hostjit_${name} PRIVATE -fno-rtti)
    endif()
  else()
    set(scope INTERFACE)
    add_library(hostjit_${name} INTERFACE)
    target_link_libraries(hostjit_${name} INTERFACE hostjit_options)
  endif()
  foreach(use IN LISTS ARGN)
    if(NOT use MATCHES "^hostjit_")
      set(use hostjit_${use})
    endif()
    target_link_libraries(hostjit_${name} ${scope} ${use})
  endforeach()
endfunction()

# hostjit_link_program(target) links an executable with every layer.
function(hostjit_link_program target)
  target_link_libraries(${target} PRIVATE hostjit_jit hostjit_evaluator)
  set_target_properties(${target} PROPERTIES BUILD_RPATH "${HOSTJIT_TORCH_LIB}")
endfunction()

# hostjit_add_tool(name source) builds a command-line tool, as part of the target `tools`.
function(hostjit_add_tool name source)
  add_executable(${name} "${source}")
  hostjit_link_program(${name})
  add_dependencies(tools ${name})
endfunction()
