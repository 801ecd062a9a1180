# SPDX-License-Identifier: Apache-2.0
# Implements TENDON_QUICK_BUILD. Both tricks hide a missing include, so the preset `test` compiles each file by itself.

# Precompiled, together with a target's additional headers.
set(TENDON_STANDARD_HEADERS
    <algorithm> <array> <atomic> <chrono> <condition_variable> <cstring> <deque> <functional> <future>
    <map> <memory> <mutex> <optional> <random> <set> <span> <sstream> <string> <thread>
    <unordered_map> <variant> <vector>)

# tools/tidy.py joins files too, and reads here the names that each of them defines: lines `file name...`.
set(names_file "${PROJECT_BINARY_DIR}/names.txt")
file(WRITE "${names_file}" "")

# Sets `result` to the names that a file defines at the beginning of a line.
function(tendon_names_in source result)
  file(READ "${source}" text)
  set(word "[A-Za-z0-9_]+")
  string(REGEX MATCHALL "\n(struct|class|enum class) ${word}" types "${text}")
  string(REGEX MATCHALL "\nusing ${word} =" aliases "${text}")
  string(REGEX MATCHALL "\n(inline )?const[a-z]* [^][\n;={(]* ${word}" constants "${text}")
  string(REGEX MATCHALL "\n[A-Za-z][^][\n;=(]* ${word}\\(" functions "${text}")
  set(names ${types} ${aliases} ${constants} ${functions})
  list(TRANSFORM names REPLACE " =$|\\($" "")
  list(TRANSFORM names REPLACE ".*[ \n]" "")
  set(${result} ${names} PARENT_SCOPE)
endfunction()

# Sets `result` to the names that the headers beside `source` define, if it includes them.
function(tendon_names_beside source result)
  set(names "")
  cmake_path(GET source PARENT_PATH folder)
  file(STRINGS "${source}" includes REGEX "^#include \"[^\"]+\"")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]+/)?([^\"/]+)\".*" "\\2" header "${include}")
    if(EXISTS "${folder}/${header}")
      tendon_names_in("${folder}/${header}" found)
      list(APPEND names ${found})
    endif()
  endforeach()
  set(${result} ${names} PARENT_SCOPE)
endfunction()

# tendon_precompile_headers(<target> <header>...): makes <target> the one that precompiles these headers for others.
function(tendon_precompile_headers target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(TENDON_PRECOMPILE_LAUNCHER)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${TENDON_PRECOMPILE_LAUNCHER}")
  endif()
endfunction()

# tendon_reuse_headers(<target> [tendon_test_headers]): uses headers that are precompiled once for targets of few files.
# Does nothing if there are none.
function(tendon_reuse_headers target)
  set(from tendon_program_headers ${ARGN})
  list(GET from -1 from)
  if(TARGET ${from})
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()

# tendon_join_sources(<target> <files in a unit> <file>...): compiles several files as one, which takes half the time.
# Files that define the same name in their anonymous namespaces are put into different units. So is a file that defines
# a name of a header which another file includes.
function(tendon_join_sources target unit_size)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TENDON_QUICK_BUILD}
                                             UNITY_BUILD_MODE GROUP)
  list(GET ARGN 0 first)
  cmake_path(GET first PARENT_PATH folder)
  cmake_path(GET folder FILENAME folder)
  foreach(source IN LISTS ARGN)
    file(STRINGS "${source}" per_instruction_set REGEX "HWY_TARGET_INCLUDE" LIMIT_COUNT 1)
    if(per_instruction_set)
      continue() # it includes itself, once per file
    endif()
    tendon_names_in("${source}" names)
    tendon_names_beside("${source}" included)
    set(unit 0)
    while(TRUE)
      list(LENGTH files_${unit} count)
      set(clash "")
      foreach(name IN LISTS names)
        if(name IN_LIST names_${unit} OR name IN_LIST included_${unit})
          set(clash "${name}")
        endif()
      endforeach()
      foreach(name IN LISTS included)
        if(name IN_LIST names_${unit})
          set(clash "${name}")
        endif()
      endforeach()
      if(count LESS unit_size AND NOT clash)
        break()
      endif()
      math(EXPR unit "${unit} + 1")
    endwhile()
    list(APPEND files_${unit} "${source}")
    list(APPEND names_${unit} ${names})
    list(APPEND included_${unit} ${included})
    set_property(SOURCE "${source}" PROPERTY UNITY_GROUP "${folder}_${unit}")
    list(JOIN names " " line)
    file(APPEND "${names_file}" "${source} ${line}\n")
  endforeach()
endfunction()
