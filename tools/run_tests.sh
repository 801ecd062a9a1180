#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_tests.sh PRESET [CTEST-ARGUMENT...]: builds the preset, runs its tests, lists what was skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
tools/build.sh "$preset"
echo "== test: $preset"
# ThreadSanitizer needs its shadow at fixed addresses, which more randomness than it knows can take.
fixed=()
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then fixed=(setarch -R); fi
results="$PWD/build/$preset/junit.xml"
rm -f "$results"
status=0
"${fixed[@]}" ctest --preset "$preset" --output-junit "$results" "$@" || status=$?
[ -f "$results" ] && python3 tools/test_summary.py "$results"
exit $status
