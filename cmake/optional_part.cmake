# SPDX-License-Identifier: Apache-2.0
# tendon_optional_part(<variable> <what it is>): AUTO (build it if possible), ON or OFF. A project that has Tendon in a
# subdirectory must ask for it.
function(tendon_optional_part variable description)
  set(default OFF)
  if(PROJECT_IS_TOP_LEVEL)
    set(default AUTO)
  endif()
  set(${variable} "${default}" CACHE STRING "${description}: AUTO, ON or OFF")
  set_property(CACHE ${variable} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${variable} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${variable} is '${${variable}}': it may be AUTO, ON or OFF")
  endif()
endfunction()
