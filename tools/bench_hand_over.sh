#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the steps of a hand-over: builds the library with time stamps, in a directory of its own, and prints the
# results of benchmarks/hand_over.cpp.
#   tools/bench_hand_over.sh [times]
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p build
cmake --preset release -B build/stages -DTENDON_STAGE_CLOCK=ON -DTENDON_SHARED=OFF \
  -DTENDON_ZENOH=OFF -DTENDON_BUILD_EXAMPLES=OFF > build/stages.log
cmake --build build/stages --target bench_hand_over >> build/stages.log
for ((i = 0; i < ${1:-1}; ++i)); do build/stages/benchmarks/hand_over; done
