#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_examples.sh BUILD EXAMPLES CXX WORK: installs BUILD below WORK, builds EXAMPLES against it as a
# project of their own, and runs the first of them.
set -euo pipefail

build=$1 examples=$2 cxx=$3 work=$4

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -S "$examples" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_PREFIX_PATH="$work/prefix"
cmake --build "$work/build"
"$work/build/examples/quickstart" | grep -x 'shm: same host, proved by a shared mapping' >/dev/null
echo "the examples build against the installed package"
