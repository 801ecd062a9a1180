#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lint.sh [--fix|--without-tidy|--affected]: checks formatting, naming, frequent mistakes, layers and the rules of the
# house. --fix only formats; --affected runs clang-tidy only on the files that tools/affected_tests.py chooses. Every
# tool must first find a fault planted for it, which proves that it works.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t sources < <(find include src cli python tests benchmarks examples -name '*.hpp' -o -name '*.cpp' -o -name '*.cu')
if [ "${1:-}" = --fix ]; then
  exec clang-format-16 -i "${sources[@]}"
fi

failed=()
step() {
  echo "== lint: $1"
  "${@:2}" || failed+=("$1")
}

formatted() {
  clang-format-16 --dry-run -Werror "$@"
}

finds_planted_faults() {
  local folder=build/lint
  mkdir -p "$folder"
  cp .clang-format "$folder"
  echo 'int  badly_formatted;' >"$folder/format.cpp"
  if formatted "$folder/format.cpp" 2>/dev/null; then
    echo "clang-format does not see a planted fault"
    return 1
  fi
  python3 tools/tidy.py --self-test
}

# Makes a virtual environment of 100 MB with the headers for the Python extension module.
make_lint_venv() {
  local wanted
  wanted=$(grep -E '^(nanobind|numpy)==' tests/python/requirements.txt)
  [ "$wanted" = "$(cat build/lint/venv/made 2>/dev/null)" ] && return
  python3 -m venv --clear build/lint/venv
  # shellcheck disable=SC2086  # one word per package
  build/lint/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $wanted
  echo "$wanted" >build/lint/venv/made
}

tidy() {
  cmake --preset lint >/dev/null || return
  # If the control plane can be built, its headers are generated first.
  if grep -q '^TENDON_CONTROL_BUILT:[A-Z]*=ON$' build/lint/CMakeCache.txt; then
    cmake --build build/lint --target tendon_proto_files >/dev/null || return
  fi
  python3 tools/tidy.py build/lint "${JOBS:-$(nproc)}" "$@"
}

step "planted faults" finds_planted_faults
step "format" formatted "${sources[@]}"
for checker in layers classes unused source; do
  step "$checker" python3 tools/check_$checker.py
  step "$checker, planted faults" python3 tools/check_$checker.py --self-test
done
step "unsteady tests" python3 tools/test_summary.py --check
for script in tools/*.sh tests/*/*.sh deploy/*.sh .ci/run; do
  step "syntax of $script" bash -n "$script"
done
if [ "${1:-}" != --without-tidy ]; then
  step "deploy" tools/check_deploy.sh
  make_lint_venv
  places=(src cli python/bindings)
  if [ "${1:-}" = --affected ]; then mapfile -t places < <(python3 tools/affected_tests.py tidy); fi
  step "clang-tidy" tidy "${places[@]}"
fi

if [ ${#failed[@]} -ne 0 ]; then
  printf 'lint: failed:'
  printf ' [%s]' "${failed[@]}"
  printf '\n'
  exit 1
fi
echo "lint: everything is clean"
