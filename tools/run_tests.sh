#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_tests.sh PRESET [CTEST-ARGUMENT...]: builds the preset, runs its tests, lists what was skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
tools/build.sh "$preset"
echo "== test: $preset"
results="$PWD/build/$preset/junit.xml"
rm -f "$results"
status=0
ctest --preset "$preset" --output-junit "$results" "$@" || status=$?
[ -f "$results" ] && python3 tools/test_summary.py "$results"
exit $status
