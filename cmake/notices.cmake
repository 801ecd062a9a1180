# SPDX-License-Identifier: Apache-2.0
# THIRD_PARTY_NOTICES: the licences of the software in our binaries, and of the headers that they were compiled with.
define_property(GLOBAL PROPERTY TENDON_PARTS BRIEF_DOCS "NAME=FILE of each part")

# tendon_part(<name> <header> <target or folder>...): a part, identified by one of its files. The header is looked for
# in the include folders of the targets, in the folders, and in the compiler's default folders.
function(tendon_part name header)
  set(folders)
  foreach(place IN LISTS ARGN)
    if(TARGET "${place}")
      get_target_property(place "${place}" INTERFACE_INCLUDE_DIRECTORIES)
    endif()
    if(place)
      list(APPEND folders ${place})
    endif()
  endforeach()
  find_file(file "${header}" HINTS ${folders} NO_CACHE REQUIRED)
  set_property(GLOBAL APPEND PROPERTY TENDON_PARTS "${name}=${file}")
endfunction()

# tendon_write_notices(): call it after the last part.
function(tendon_write_notices)
  find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)
  get_property(parts GLOBAL PROPERTY TENDON_PARTS)
  set(tool "${PROJECT_SOURCE_DIR}/tools/notices.py")
  set(inputs "${tool}")
  set(appended)
  if(TENDON_HAS_ZENOH)
    cmake_path(GET TENDON_ZENOH_ARCHIVE PARENT_PATH crate_folder)
    set(appended --append "${crate_folder}/notices.txt")
    list(APPEND inputs "${crate_stamp}")
  endif()
  set(notices "${PROJECT_BINARY_DIR}/THIRD_PARTY_NOTICES")
  add_custom_command(
    OUTPUT "${notices}"
    COMMAND "${Python3_EXECUTABLE}" "${tool}" "${notices}" ${parts} ${appended}
    DEPENDS ${inputs}
    COMMENT "Collecting the licences of what others wrote"
    VERBATIM)
  add_custom_target(tendon_notices ALL DEPENDS "${notices}")
  if(TENDON_HAS_ZENOH)
    add_dependencies(tendon_notices tendon_zenoh_crate)
  endif()
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${notices}" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
          COMPONENT tendon_Runtime)
endfunction()

tendon_part("JSON for Modern C++" nlohmann/json.hpp nlohmann_json::nlohmann_json)
tendon_part("Highway" hwy/highway.h hwy::hwy)
if(TENDON_HAS_IPSEC_MB)
  tendon_part("libipsec-mb" intel-ipsec-mb.h tendon_ipsec_mb)
endif()
if(TENDON_HAS_CONTROL)
  tendon_part("cppzmq" zmq.hpp cppzmq)
  tendon_part("Protobuf" google/protobuf/message_lite.h protobuf::libprotobuf-lite)
endif()
