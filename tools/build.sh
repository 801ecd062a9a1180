#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh PRESET [TARGET...]: configures the preset if necessary and builds it.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
# CMake tracks its own files, but not the presets.
if [ ! build/"$preset"/build.ninja -nt CMakePresets.json ]; then
  configured=$preset
  # Two presets share this folder; the preset that configured it does so again.
  if [ "$preset" = test ] && grep '^TENDON_QUICK_BUILD:BOOL=ON' build/test/CMakeCache.txt >/dev/null 2>&1; then
    configured=test-quick
  fi
  echo "== configure: $configured"
  cmake --preset "$configured"
fi
echo "== build: $preset"
cmake --build build/"$preset" --parallel "${JOBS:-$(nproc)}" ${1:+--target "$@"}
