# SPDX-License-Identifier: Apache-2.0
# The C++ worker of examples/engine, which computes with Eigen; no library of Tendon uses it. Sets TENDON_HAS_EIGEN, and
# TENDON_EIGEN_WHY: the version used, or the reason why the worker is not built.
tendon_optional_part(TENDON_EIGEN "The worker in C++ of examples/engine, which needs Eigen")

set(TENDON_EIGEN_FLAGS "" CACHE STRING "Compiler flags for that worker's arithmetic alone, such as -march=native")

set(TENDON_HAS_EIGEN OFF)
set(TENDON_EIGEN_WHY "TENDON_EIGEN is OFF")
if(NOT TENDON_EIGEN STREQUAL "OFF")
  find_package(Eigen3 3.4 QUIET NO_MODULE)
  if(NOT TARGET Eigen3::Eigen)
    set(TENDON_EIGEN_WHY "there is no Eigen 3.4: tools/setup.sh engine installs it")
  elseif(NOT TENDON_HAS_CONTROL)
    set(TENDON_EIGEN_WHY "there is no control plane")
  else()
    set(TENDON_HAS_EIGEN ON)
    set(TENDON_EIGEN_WHY "Eigen ${Eigen3_VERSION}")
  endif()
  if(TENDON_EIGEN STREQUAL "ON" AND NOT TENDON_HAS_EIGEN)
    message(FATAL_ERROR "TENDON_EIGEN=ON: ${TENDON_EIGEN_WHY}")
  endif()
endif()
