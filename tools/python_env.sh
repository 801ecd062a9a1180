#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python_env.sh [peers]: makes build/python/venv, a virtual environment (5 GB: torch) with the wheel
# of this tree and the model of examples/engine in it; with `peers` also build/python/peers, what only
# the benchmarks need. Each is made again only when what it is made of changed.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/python
python=$folder/venv/bin/python
requirements=tests/python/requirements.txt
mkdir -p "$folder"

# One at a time makes what is in this folder.
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

# Python compiles what it imports; to compile all of torch and scipy takes a minute.
pip_install() {
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile "$@"
}

if ! unchanged "$folder/venv.stamp" "$requirements"; then
  echo "== python: a virtual environment with torch and tensordict, once"
  rm -f "$folder"/*.stamp
  python3 -m venv --clear "$folder/venv"
  pip_install -r "$requirements"
  mv "$folder/venv.stamp.new" "$folder/venv.stamp"
fi

engine=examples/engine/requirements.txt
client=tests/python/engine_requirements.txt
if ! unchanged "$folder/engine.stamp" "$engine" "$client" "$requirements"; then
  echo "== python: the model of examples/engine, and its HTTP libraries (105 MB), once"
  pip_install -r "$engine" -r "$client"
  mv "$folder/engine.stamp.new" "$folder/engine.stamp"
fi

mapfile -t inputs < <(find include src cli cmake proto python docs/errors tools/completion CMakeLists.txt \
                           pyproject.toml README.md LICENSE -type f -not -name '*.pyc' | sort)
if ! unchanged "$folder/wheel.stamp" "${inputs[@]}"; then
  echo "== python: the wheel"
  CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} pip_install --no-build-isolation --force-reinstall \
    --config-settings tendon.repair=false .
  # As pip does for users: where Python may write no bytecode, each process would compile the package.
  (cd "$folder" && venv/bin/python -m compileall -q venv/lib/python3*/site-packages/tendon)
  mv "$folder/wheel.stamp.new" "$folder/wheel.stamp"
fi

peers=benchmarks/peers/python/requirements.txt
if [ "${1:-}" = peers ] && ! unchanged "$folder/peers.stamp" "$peers" "$requirements"; then
  echo "== python: what the benchmarks compare with, once"
  rm -rf "$folder/peers" "$folder/peers.stamp"
  pip_install --target "$folder/peers" -r "$peers"
  mv "$folder/peers.stamp.new" "$folder/peers.stamp"
fi
