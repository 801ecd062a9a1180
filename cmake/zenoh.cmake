# SPDX-License-Identifier: Apache-2.0
# Discovery by Zenoh: the crate rust/tendon-zenoh, built once into the user's cache folder. Sets TENDON_HAS_ZENOH, and
# TENDON_ZENOH_WHY: the reason if it is off.
tendon_optional_part(TENDON_ZENOH "Discovery by Zenoh, which is built with cargo")
set(TENDON_ZENOH_PROFILE release CACHE STRING "How cargo builds it: release, or quick, which is not optimised")
set_property(CACHE TENDON_ZENOH_PROFILE PROPERTY STRINGS release quick)

# The version that the crates of the list require.
set(oldest_rustc 1.89)
set(TENDON_HAS_ZENOH OFF)
set(TENDON_ZENOH_WHY "TENDON_ZENOH is OFF")
if(NOT TENDON_ZENOH STREQUAL "OFF")
  set(TENDON_ZENOH_WHY "")
  find_program(TENDON_CARGO cargo)
  mark_as_advanced(TENDON_CARGO)
  find_package(Python3 3.11 COMPONENTS Interpreter)
  if(NOT TENDON_CARGO)
    set(TENDON_ZENOH_WHY "there is no cargo: tools/setup.sh zenoh installs it")
  elseif(NOT Python3_FOUND)
    set(TENDON_ZENOH_WHY "there is no Python 3.11")
  else()
    execute_process(COMMAND "${TENDON_CARGO}" --version OUTPUT_VARIABLE cargo_version)
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" cargo_version "${cargo_version}")
    if(NOT cargo_version OR cargo_version VERSION_LESS oldest_rustc)
      set(TENDON_ZENOH_WHY "${TENDON_CARGO} is older than ${oldest_rustc}: '${cargo_version}'")
    endif()
  endif()
  if(TENDON_ZENOH_WHY STREQUAL "")
    # Fetches them here, where AUTO can still leave Zenoh out, and not during the build.
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/zenoh_crate.py" fetch "${TENDON_CARGO}"
      TIMEOUT 600  # seconds: a registry that does not reply counts as missing
      RESULT_VARIABLE fetch_result)
    if(NOT fetch_result EQUAL 0)
      set(TENDON_ZENOH_WHY "its crates could not be downloaded")
    endif()
  endif()
  if(TENDON_ZENOH_WHY STREQUAL "")
    set(TENDON_HAS_ZENOH ON)
  elseif(TENDON_ZENOH STREQUAL "ON")
    message(FATAL_ERROR "TENDON_ZENOH=ON: ${TENDON_ZENOH_WHY}")
  endif()
endif()

# The library and its tests use one file of each pair: with Zenoh, or without.
if(TENDON_HAS_ZENOH)
  set(TENDON_ZENOH_LEAVES_OUT "/no_zenoh_session(_test)?\\.cpp$")
else()
  set(TENDON_ZENOH_LEAVES_OUT "/zenoh_(session|session_test|node_test)\\.cpp$")
endif()

if(TENDON_HAS_ZENOH)
  set(crate_dir "${PROJECT_SOURCE_DIR}/rust/tendon-zenoh")
  set(crate_tool "${PROJECT_SOURCE_DIR}/tools/zenoh_crate.py")
  file(STRINGS "${crate_dir}/crates.txt" of_zenoh REGEX "^zenoh [0-9.]+ ")
  string(REGEX REPLACE "^zenoh ([0-9.]+) .*" "\\1" TENDON_ZENOH_VERSION "${of_zenoh}")
  # A change of these files makes another archive with another path.
  file(GLOB crate_files CONFIGURE_DEPENDS "${crate_dir}/src/*.rs")
  list(APPEND crate_files "${crate_dir}/Cargo.toml" "${crate_dir}/crates.txt" "${crate_tool}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${crate_files})
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" "${crate_tool}" path "${TENDON_CARGO}" --profile "${TENDON_ZENOH_PROFILE}"
    OUTPUT_VARIABLE TENDON_ZENOH_ARCHIVE OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  # A file of this build marks the archive as complete: ninja removes the output of an interrupted command, and other
  # builds use the archive too.
  string(MD5 archive_hash "${TENDON_ZENOH_ARCHIVE}")
  set(crate_stamp "${PROJECT_BINARY_DIR}/tendon_zenoh_${archive_hash}.built")
  if(NOT EXISTS "${TENDON_ZENOH_ARCHIVE}")
    file(REMOVE "${crate_stamp}")
  endif()
  # Uses the terminal, because it takes minutes: cargo shows its progress.
  add_custom_command(
    OUTPUT "${crate_stamp}"
    COMMAND "${Python3_EXECUTABLE}" "${crate_tool}" build "${TENDON_CARGO}" --profile "${TENDON_ZENOH_PROFILE}"
    COMMAND "${CMAKE_COMMAND}" -E touch "${crate_stamp}"
    COMMENT "Building rust/tendon-zenoh, once for this compiler"
    USES_TERMINAL VERBATIM)
  add_custom_target(tendon_zenoh_crate DEPENDS "${crate_stamp}")
endif()
