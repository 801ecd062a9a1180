#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_tests.sh PRESET [TARGET...] [-CTEST-OPTION...]: builds the preset, or these targets of it, runs
# its tests, lists what was skipped and shows what failed.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
targets=()
while [ $# -ne 0 ] && [[ $1 != -* ]]; do
  targets+=("$1")
  shift
done
tools/build.sh "$preset" ${targets[@]+"${targets[@]}"}
echo "== test: $preset"
results="$PWD/build/$preset/junit.xml"
rm -f "$results"
status=0
ctest --preset "$preset" --output-junit "$results" "$@" || status=$?
[ -f "$results" ] && python3 tools/test_summary.py "$results"
exit $status
