# SPDX-License-Identifier: Apache-2.0
# To be sourced. run_pytest RESULTS PYTHON [PYTEST-ARGUMENT...]: runs tests/python and writes the JUnit file RESULTS.
# Failed tests run once more if tests/unsteady.txt lists one of them, as in tools/run_tests.sh.
#
# Three processes share the files, because most tests wait for other processes. A single file, or an option such as -k
# or -x, runs in one process, which starts sooner; `-n 3` then asks for several.
run_pytest() {
  local results=$1 python=$2 status=0
  local again=${results%.xml}_again.xml processes=(-n 3 --dist loadfile --no-loadscope-reorder)
  shift 2
  if [ $# -eq 1 ] || [[ " $*" == *" -"* ]]; then processes=(); fi
  rm -f "$results" "$again"
  # If Python may not write bytecode, each of some hundred processes would compile torch itself.
  unset PYTHONDONTWRITEBYTECODE
  export PYTHONPYCACHEPREFIX=$PWD/build/python/bytecode
  "$python" -m pytest -q --junitxml="$results" "${processes[@]}" "$@" || status=$?
  if [ -f "$results" ] && [ -n "$(python3 tools/test_summary.py --again "$results")" ]; then
    echo "== test: python, what failed, again"
    status=0
    "$python" -m pytest -q --junitxml="$again" --last-failed --last-failed-no-failures=none "$@" ||
      status=$?
    # A test that is not listed may have passed only in the second run.
    python3 tools/test_summary.py "$results" >/dev/null || status=1
  fi
  return $status
}
