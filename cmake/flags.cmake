# SPDX-License-Identifier: Apache-2.0
# This target has all of our own compile and link options. Our targets link it PRIVATE and it is never exported, so a
# user's build gets none of them.
add_library(tendon_flags INTERFACE)
target_compile_features(tendon_flags INTERFACE cxx_std_20)

# Messages name files relative to the repository, and no binary contains a path of the build machine.
target_compile_options(tendon_flags INTERFACE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")

# g++ 12 reports these on correct code of its own standard library when it optimises. clang-tidy checks the same.
set(tendon_false_warnings)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(tendon_false_warnings -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds
                            -Wno-maybe-uninitialized)
endif()

# Warnings are for people who can fix them: not for a project that builds us as a part of itself.
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(tendon_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
    $<$<BOOL:${TENDON_DEVELOPER}>:-Werror>)
  # src/ reopens the inline namespace v0 without `inline`: see tendon/core/version.hpp.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(tendon_flags INTERFACE -Wno-inline-namespace-reopened-noninline)
  endif()
  target_compile_options(tendon_flags INTERFACE ${tendon_false_warnings})
endif()

# To clear 150 to 500 bytes, g++ writes `rep stos`, whose start-up takes longer than the stores. Each message has
# several such clears: a call, a sample, a result.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(tendon_flags INTERFACE
    "$<$<CONFIG:Release,RelWithDebInfo>:-mmemset-strategy=unrolled_loop:512:noalign$<COMMA>libcall:-1:noalign>")
endif()

if(TENDON_FAILPOINTS)
  target_compile_definitions(tendon_flags INTERFACE TENDON_FAILPOINTS=1)
endif()
if(TENDON_STAGE_CLOCK)
  target_compile_definitions(tendon_flags INTERFACE TENDON_STAGE_CLOCK=1)
endif()

if(TENDON_SANITIZE)
  # Without -fno-sanitize-recover a finding is printed and the test still passes. The vptr check opens pipes to test
  # whether memory is readable, and reports false findings when a test has no descriptors left.
  set(sanitize_flags -fsanitize=${TENDON_SANITIZE} -fno-sanitize-recover=all -fno-sanitize=vptr
                     -fno-omit-frame-pointer)
  # Two checks of each pointer, which double the compile time of the address sanitizer. A null pointer ends the process
  # anyway, and x86 reads unaligned data.
  if(TENDON_QUICK_SANITIZE)
    list(APPEND sanitize_flags -fno-sanitize=null,alignment)
  endif()
  target_compile_options(tendon_flags INTERFACE ${sanitize_flags})
  target_link_options(tendon_flags INTERFACE ${sanitize_flags})
endif()
if(TENDON_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TENDON_BUILD_FUZZERS needs clang (libFuzzer); use the preset 'fuzz'")
  endif()
  target_compile_options(tendon_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

set(TENDON_CCACHE "none")
set(TENDON_FAST_LINKER "default")
if(PROJECT_IS_TOP_LEVEL)
  find_program(TENDON_CCACHE_PROGRAM ccache)
  mark_as_advanced(TENDON_CCACHE_PROGRAM)
  if(TENDON_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(TENDON_CCACHE "${TENDON_CCACHE_PROGRAM}")
    # NOHASHDIR, BASEDIR: two clones and two build folders with the same flags share their results. The compiler then
    # gets relative paths, which __FILE__ shows.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env CCACHE_NOHASHDIR=1 "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
        CCACHE_SLOPPINESS=pch_defines,time_macros "${TENDON_CCACHE_PROGRAM}")
    if(TENDON_QUICK_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # Without both, ccache stores no result that uses a precompiled header.
      target_compile_options(tendon_flags INTERFACE -fpch-preprocess)
      # g++ identifies the files of a precompiled header by their bytes. ccache leaves comments out of its key: it would
      # return a header with older comments, and `#pragma once` would then include the changed files twice.
      set(TENDON_PRECOMPILE_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
      list(INSERT TENDON_PRECOMPILE_LAUNCHER 3 CCACHE_COMMENTS=1 CCACHE_NODIRECT=1)
    endif()
    file(RELATIVE_PATH source_from_build "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
    target_compile_options(tendon_flags INTERFACE "-fmacro-prefix-map=${source_from_build}=")
  endif()
  set(fast_linkers mold lld)
  if(TENDON_SANITIZE)
    # mold 1.10 may lay out a large sanitized program so that it cannot be loaded ("cannot apply additional memory
    # protection after relocation").
    set(fast_linkers lld)
  endif()
  foreach(linker IN LISTS fast_linkers)
    find_program(TENDON_LINKER_${linker} NAMES ${linker})
    mark_as_advanced(TENDON_LINKER_${linker})
    if(TENDON_LINKER_${linker})
      set(TENDON_FAST_LINKER ${linker})
      target_link_options(tendon_flags INTERFACE -fuse-ld=${linker})
      break()
    endif()
  endforeach()
endif()
