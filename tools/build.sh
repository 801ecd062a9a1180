#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh PRESET [TARGET...]: configures the preset when needed and builds it.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
# CMake follows its own files by itself, but not the presets.
if [ ! build/"$preset"/build.ninja -nt CMakePresets.json ]; then
  echo "== configure: $preset"
  cmake --preset "$preset"
fi
echo "== build: $preset"
cmake --build build/"$preset" --parallel "${JOBS:-$(nproc)}" ${1:+--target "$@"}
