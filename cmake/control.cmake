# SPDX-License-Identifier: Apache-2.0
# The control plane: Controller and Worker over ZeroMQ and Protobuf. It is a library of its own, so that other programs
# link neither. Sets TENDON_HAS_CONTROL, and TENDON_CONTROL_WHY: the versions used, or the reason why it is not built.
tendon_optional_part(TENDON_CONTROL "The control plane, which needs ZeroMQ and Protobuf")

set(TENDON_HAS_CONTROL OFF)
set(TENDON_CONTROL_WHY "TENDON_CONTROL is OFF")
if(NOT TENDON_CONTROL STREQUAL "OFF")
  find_package(Protobuf 3.21 QUIET)
  find_package(cppzmq 4.9 QUIET)
  if(NOT Protobuf_FOUND OR NOT Protobuf_PROTOC_EXECUTABLE)
    set(TENDON_CONTROL_WHY "there is no Protobuf 3.21: tools/setup.sh control installs it")
  elseif(NOT cppzmq_FOUND)
    set(TENDON_CONTROL_WHY "there is no cppzmq 4.9: tools/setup.sh control installs it")
  else()
    set(TENDON_HAS_CONTROL ON)
    set(TENDON_CONTROL_WHY "Protobuf ${Protobuf_VERSION}, cppzmq ${cppzmq_VERSION}")
  endif()
  if(TENDON_CONTROL STREQUAL "ON" AND NOT TENDON_HAS_CONTROL)
    message(FATAL_ERROR "TENDON_CONTROL=ON: ${TENDON_CONTROL_WHY}")
  endif()
endif()

set(TENDON_CONTROL_BUILT ${TENDON_HAS_CONTROL} CACHE INTERNAL "")

# tendon_proto(<target> <file below proto/>...): an object library of protoc's output, with the lite runtime. With the
# full one, two libraries with the same messages end a process. Its headers are system headers, because our warnings and
# checks do not apply to them.
function(tendon_proto target)
  set(generated "${PROJECT_BINARY_DIR}/proto/${target}")
  set(made)
  foreach(file IN LISTS ARGN)
    cmake_path(REMOVE_EXTENSION file LAST_ONLY OUTPUT_VARIABLE stem)
    add_custom_command(
      OUTPUT "${generated}/${stem}.pb.cc" "${generated}/${stem}.pb.h"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${generated}"
      COMMAND "${Protobuf_PROTOC_EXECUTABLE}" "--cpp_out=lite:${generated}" -I "${PROJECT_SOURCE_DIR}/proto" "${file}"
      DEPENDS "${PROJECT_SOURCE_DIR}/proto/${file}"
      VERBATIM)
    list(APPEND made "${generated}/${stem}.pb.cc")
  endforeach()
  add_library(${target} OBJECT ${made})
  # clang-tidy needs the files too, without their objects.
  add_custom_target(${target}_files DEPENDS ${made})
  if(NOT TARGET tendon_proto_files)
    add_custom_target(tendon_proto_files)
  endif()
  add_dependencies(tendon_proto_files ${target}_files)
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(${target} PRIVATE cxx_std_20)
  if(TENDON_SANITIZE)
    target_compile_options(${target} PRIVATE ${sanitize_flags})
  endif()
  target_include_directories(${target} SYSTEM PUBLIC "${generated}")
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf-lite)
endfunction()
