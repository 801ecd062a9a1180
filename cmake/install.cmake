# SPDX-License-Identifier: Apache-2.0
# An installed tree may be moved: no file in it contains its path.
include(CMakePackageConfigHelpers)
tendon_write_notices()

# Builds exactly the installed targets.
add_custom_target(tendon_installed DEPENDS tendon tendon_notices)
foreach(target tendon_shared tendon_control tendon_cli tendon_manual)
  if(TARGET ${target})
    add_dependencies(tendon_installed ${target})
  endif()
endforeach()

install(TARGETS tendon EXPORT tendonTargets
  ARCHIVE COMPONENT tendon_Development
  FILE_SET HEADERS COMPONENT tendon_Development
  FILE_SET tables COMPONENT tendon_Development)
if(TARGET tendon_shared)
  install(TARGETS tendon_shared EXPORT tendonTargets
    LIBRARY COMPONENT tendon_Runtime NAMELINK_COMPONENT tendon_Development
    FILE_SET HEADERS COMPONENT tendon_Development
    FILE_SET tables COMPONENT tendon_Development)
endif()
if(TENDON_HAS_CONTROL)
  # find_package(tendon COMPONENTS control): a program without it needs neither ZeroMQ nor Protobuf.
  install(TARGETS tendon_control EXPORT tendonControlTargets ARCHIVE COMPONENT tendon_Development)
  install(DIRECTORY proto/tendon DESTINATION "${CMAKE_INSTALL_DATADIR}/tendon/proto"
          COMPONENT tendon_Development FILES_MATCHING PATTERN "*.proto")
endif()
if(TENDON_HAS_ZENOH)
  # The static library links this; the shared one contains it.
  install(FILES "${TENDON_ZENOH_ARCHIVE}" DESTINATION "${CMAKE_INSTALL_LIBDIR}"
          COMPONENT tendon_Development)
  set(pc_zenoh "-ltendon_zenoh -ldl -lm ")
endif()
if(TENDON_HAS_IPSEC_MB)
  set(pc_ipsec_mb "-lIPSec_MB ")
endif()
if(TARGET tendon_cli)
  install(TARGETS tendon_cli RUNTIME COMPONENT tendon_Runtime)
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tendon")
install(EXPORT tendonTargets NAMESPACE tendon:: DESTINATION "${package_dir}"
        COMPONENT tendon_Development)
if(TENDON_HAS_CONTROL)
  install(EXPORT tendonControlTargets NAMESPACE tendon:: DESTINATION "${package_dir}"
          COMPONENT tendon_Development)
endif()
configure_package_config_file(cmake/tendonConfig.cmake.in "${PROJECT_BINARY_DIR}/tendonConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
# Minor versions of 0.x may break compatibility.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tendonConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tendonConfig.cmake"
              "${PROJECT_BINARY_DIR}/tendonConfigVersion.cmake"
        DESTINATION "${package_dir}" COMPONENT tendon_Development)

set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}/${pc_dir}"
           OUTPUT_VARIABLE pc_prefix)
configure_file(cmake/tendon.pc.in "${PROJECT_BINARY_DIR}/tendon.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/tendon.pc" DESTINATION "${pc_dir}"
        COMPONENT tendon_Development)
if(TENDON_HAS_CONTROL)
  configure_file(cmake/tendon_control.pc.in "${PROJECT_BINARY_DIR}/tendon_control.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/tendon_control.pc" DESTINATION "${pc_dir}"
          COMPONENT tendon_Development)
endif()
