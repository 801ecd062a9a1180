#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_tests.sh PRESET [TARGET...] [-CTEST-OPTION...]: builds the preset, or these targets of it, runs its tests, lists
# the skipped ones and shows the failures. A test listed in tests/unsteady.txt gets a second try: three more runs, one
# at a time.
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
again=${results%.xml}_again.xml
rm -f "$results" "$again"
status=0
ctest --preset "$preset" --output-junit "$results" "$@" || status=$?
[ -f "$results" ] || exit $status
failed=$(python3 tools/test_summary.py --again "$results")
if [ -n "$failed" ]; then
  echo "== test: $preset, what failed, again"
  status=0
  ctest --preset "$preset" --output-junit "$again" --parallel 1 -R "$failed" --repeat until-fail:3 || status=$?
fi
python3 tools/test_summary.py "$results" || status=1
exit $status
