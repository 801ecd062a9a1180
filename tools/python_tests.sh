#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python_tests.sh [PYTEST-ARGUMENT...]: runs tests/python against the installed wheel. The virtual
# environment (5 GB: torch) and the wheel are made again only when what they are made of changed.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/python
python=$folder/venv/bin/python
requirements=tests/python/requirements.txt
mkdir -p "$folder"

# One at a time makes what is in this folder; any number may test with it.
exec 9>"$folder/lock"
if ! flock --exclusive --nonblock 9; then
  echo "== python: another run in this tree makes the wheel or tests it; waiting"
  flock --exclusive 9
fi

# unchanged STAMP FILE...: are these files what they were when STAMP was written?
unchanged() {
  local stamp=$1
  shift
  sha256sum "$@" >"$stamp.new"
  cmp -s "$stamp.new" "$stamp"
}

if ! unchanged "$folder/venv.stamp" "$requirements"; then
  echo "== python: a virtual environment with torch and tensordict, once"
  rm -f "$folder"/*.stamp
  python3 -m venv --clear "$folder/venv"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$requirements"
  unchanged "$folder/venv.stamp" "$requirements" || mv "$folder/venv.stamp.new" "$folder/venv.stamp"
fi

mapfile -t inputs < <(find include src cli cmake python docs/errors tools/completion CMakeLists.txt \
                           pyproject.toml README.md LICENSE -type f -not -name '*.pyc' | sort)
if ! unchanged "$folder/wheel.stamp" "${inputs[@]}"; then
  echo "== python: the wheel"
  CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} "$python" -m pip install --quiet \
    --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
  mv "$folder/wheel.stamp.new" "$folder/wheel.stamp"
fi

flock --shared 9
echo "== test: python"
TENDON_PYTHON_PEER=$PWD/build/test/tests/python_peer \
  "$python" -m pytest -q --junitxml="$folder/junit.xml" "$@"
