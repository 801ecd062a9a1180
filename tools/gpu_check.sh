#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_check.sh --pack DIR    on a Debian machine: puts packages that the other machine lacks into DIR
# gpu_check.sh DIR [OUT]     on a machine with a GPU: builds, runs tests/gpu, prints one table, in 7 minutes.
# The GPU machine is a bare Ubuntu 24.04 with CUDA 13, Python 3.12, torch 2.11, CMake, Ninja and g++; it needs no
# network. Clocks, compute mode and MIG stay unchanged. If no daemon of MPS runs, the script starts one and ends it
# again.
set -euo pipefail
cd "$(dirname "$0")/.."

PACK_MIB_MAX=60
RUN_S=420 # the build and all parts

# download FOLDER REQUIREMENT...: downloads the wheels for the other machine, which differ from this machine's.
download() {
  local to=$1
  shift
  python3 -m pip download --quiet --no-deps --dest "$to" --only-binary=:all: --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_24_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any "$@"
}

# peers FILE: packs the software that Tendon is compared with into one archive of runtime files. The wheel of UCX alone
# has 40 MiB, most of it static libraries and programs.
peers() {
  local work at
  work=$(mktemp -d)
  # shellcheck disable=SC2046 # words
  download "$work/wheels" $(sed -n '/^[a-z]/{p;/^ucxx/q}' benchmarks/peers/python/requirements.txt) \
    $(sed -n 's/^\(tensordict\|cloudpickle\|pyvers\)==.*/&/p' tests/python/requirements.txt)
  for at in "$work"/wheels/*.whl; do python3 -m zipfile -e "$at" "$work/site"; done
  find "$work/site" -type f \( -name '*.a' -o -name '*perftest*' -o -name '*.so.0.0.0' \) -delete
  rm -rf "$work"/site/*/{bin,include} "$work"/site/*/lib/{cmake,pkgconfig}
  tar -C "$work/site" --sort=name --owner=0 --group=0 -cf - . | xz -T0 -9 >"$1"
  rm -rf "$work"
}

usage() {
  echo "usage: tools/gpu_check.sh --pack DIR | tools/gpu_check.sh DIR [OUT]" >&2
  exit 2
}

pack() {
  local folder=$1 kib
  mkdir -p "$folder/wheels" "$folder/debs"
  folder=$(realpath "$folder")
  # shellcheck disable=SC2046 # words
  download "$folder/wheels" \
    $(sed -n 's/^\(scikit-build-core\|nanobind\|typing-extensions\)==.*/&/p' python/backend/requirements.txt) \
    packaging pathspec "$(sed -n "s/^\(numpy==[0-9.]*\); python_version >= .*/\1/p" python/backend/requirements.txt)"
  peers "$folder/peers.tar.xz"
  # The headers of the library group, and the libraries that their users link to.
  local headers=(libssl-dev libhwy-dev nlohmann-json3-dev libcli11-dev libfmt-dev) libraries
  mapfile -t libraries < <(apt-cache depends "${headers[@]}" | sed -n 's/^ *Depends: \(lib[a-z0-9]*\)$/\1/p' | sort -u)
  (cd "$folder/debs" && apt-get -q download "${headers[@]}" "${libraries[@]}")
  kib=$(du -sk "$folder" | cut -f1)
  if [ "$kib" -gt $((PACK_MIB_MAX * 1024)) ]; then
    echo "gpu_check: $folder has $kib KiB, and $PACK_MIB_MAX MiB may be carried" >&2
    exit 1
  fi
  echo "gpu_check: $folder has $kib KiB: carry it beside this tree, and run tools/gpu_check.sh $folder there"
}

[ $# -ge 1 ] && [ $# -le 2 ] || usage
if [ "$1" = --pack ]; then
  [ $# -eq 2 ] || usage
  pack "$2"
  exit 0
fi
[ -d "$1/debs" ] && [ -d "$1/wheels" ] || usage
carried=$(realpath "$1")
out=${2:-build/gpu_check}
mkdir -p "$out"
out=$(realpath "$out")
rows=$out/rows.txt
: >"$rows"

row() { printf 'ROW\t%s\t%s\t%s\t%s\n' "$@" >>"$rows"; }

# --- the table, which is printed in any case, and the daemon that this script started

started_daemon=
stop_daemon() {
  [ -n "$started_daemon" ] || return 0
  echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1 || true
  started_daemon=
  rm -rf "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

finish() {
  local code=$?
  trap - EXIT
  stop_daemon
  echo
  awk -F '\t' '
    {for (i = 2; i <= 5; ++i) {cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i)}}
    END {for (n = 1; n <= NR; ++n) {
      for (i = 2; i <= 5; ++i) printf "%-*s%s", width[i], cell[n, i], i < 5 ? "  " : "\n"}}' \
    <(printf 'ROW\twhat\tvalue\ttarget\tresult\n') "$rows"
  if [ "$code" -eq 0 ] && awk -F '\t' '$5 == "missed" {found = 1} END {exit !found}' "$rows"; then code=1; fi
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

# --- the build

echo "== the machine"
nvidia-smi --query-gpu=name,driver_version,compute_mode,mig.mode.current --format=csv,noheader || true
uname -r

system=$out/system
if [ ! -d "$system" ]; then
  mkdir "$system"
  for package in "$carried"/debs/*.deb; do dpkg-deb -x "$package" "$system"; done
fi
multiarch=usr/lib/x86_64-linux-gnu
# Programs find the two libraries that Ubuntu lacks, and Ubuntu's own OpenSSL.
mkdir -p "$out/lib"
cp -P "$system/$multiarch"/libfmt.so.* "$system/$multiarch"/libhwy*.so.* "$out/lib/"
export CMAKE_PREFIX_PATH="$system/usr" OPENSSL_ROOT_DIR="$system/usr"
export CPATH="$system/usr/include:$system/usr/include/x86_64-linux-gnu" LIBRARY_PATH="$system/$multiarch"
export LD_LIBRARY_PATH="$out/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

python=${TENDON_GPU_CHECK_PYTHON:-}
for candidate in $python python3; do
  if "$candidate" -c 'import torch' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "gpu_check: no Python with torch; TENDON_GPU_CHECK_PYTHON names one" >&2
  row "build" "no Python with torch" "-" "not run"
  exit 1
fi
"$python" -c 'import sys, torch; print("Python", sys.version.split()[0], "torch", torch.__version__)'

echo "== build"
if [ ! -x "$out/venv/bin/python" ]; then
  "$python" -m venv --system-site-packages "$out/venv"
  # A nested virtual environment does not see the packages of the outer one.
  "$python" -c 'import site; print("\n".join(site.getsitepackages()))' \
    >"$("$out/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/outer.pth"
  wheels=("$carried"/wheels/*.whl)
  # Keeps the NumPy that torch uses there.
  if "$python" -c 'import numpy' 2>/dev/null; then
    for at in "${!wheels[@]}"; do case ${wheels[at]} in */numpy-*) unset "wheels[$at]" ;; esac; done
  fi
  "$out/venv/bin/python" -m pip install --quiet --no-index --no-deps "${wheels[@]}"
fi
python=$out/venv/bin/python
begin=$SECONDS
if ! timeout -k 5 270 "$python" -m pip install --quiet --no-index --no-build-isolation --no-deps --force-reinstall . \
  --config-settings tendon.check=false --config-settings tendon.repair=false \
  --config-settings cmake.define.TENDON_ZENOH=OFF --config-settings cmake.define.TENDON_CONTROL=OFF \
  >"$out/build.txt" 2>&1; then
  tail -n 30 "$out/build.txt" >&2
  row "build of the wheel" "failed" "-" "missed"
  exit 1
fi
row "build of the wheel" "$((SECONDS - begin)) s" "-" "stated"

# --- the parts

mode="time slices"

# part NAME SECONDS COMMAND...: writes the output to OUT/NAME.txt, and adds its rows to the table. A part that times out
# keeps its rows.
part() {
  local name=$1 limit=$2 code=0 left=$((RUN_S - SECONDS))
  shift 2
  local file="$out/$name${mode:+ ($mode)}.txt"
  if [ "$left" -lt 10 ]; then
    row "$name ($mode)" "-" "-" "not run"
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  echo "== $name ($mode)"
  # timeout signals the part's process group, so that its processes end with it.
  TENDON_GPU_CHECK_MODE=$mode timeout -k 2 "$limit" "$@" >"$file" 2>&1 || code=$?
  awk -F '\t' '$1 == "ROW"' "$file" >>"$rows"
  [ "$code" -eq 0 ] && return
  tail -n 15 "$file"
  case $code in
    124 | 137) row "$name ($mode)" "cut after $limit s" "-" "missed" ;;
    *) row "$name ($mode)" "exit code $code" "0" "missed" ;;
  esac
}

# program NAME: compiles tests/gpu/NAME.cpp into OUT; it links no library of Tendon.
program() {
  g++ -std=c++20 -O2 -Iinclude -Isrc -Itests "tests/gpu/$1.cpp" -ldl -o "$out/$1" && return
  row "$1" "does not compile" "-" "missed"
  return 1
}

bench() { part "C++" 60 "$python" tests/gpu/bench_rows.py "$out/venv/bin/tendon" "$out/hop"; }

peers=$out/peers
tensordicts() {
  if [ -f "$carried/peers.tar.xz" ] && [ ! -d "$peers" ]; then
    rm -rf "$peers.new"
    mkdir "$peers.new"
    tar -C "$peers.new" -xJf "$carried/peers.tar.xz" && mv "$peers.new" "$peers"
  fi
  if ! PYTHONPATH=$peers "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("tensordict") is None)'; then
    row "TensorDict: Tendon, TensorDictPipe (UCX), gloo ($mode)" "no tensordict: none was carried" "-" "not run"
    return
  fi
  PYTHONPATH=$peers part "TensorDicts" 60 "$python" tests/gpu/tensordict_times.py
}

program hop || true
# A real driver must answer like the double, which all other tests use.
if program driver_sequences; then
  part "driver_sequences" 20 "$out/driver_sequences"
  if diff tests/gpu/driver_sequences.txt "$out/driver_sequences ($mode).txt" >"$out/driver_sequences.diff" 2>&1; then
    row "driver calls answered as the double does" "all equal" "all equal" "ok"
  else
    cat "$out/driver_sequences.diff"
    row "driver calls answered as the double does" "$(grep -c '^[<>]' "$out/driver_sequences.diff" || true) lines differ" "all equal" "missed"
  fi
fi
bench
part "contents" 90 "$python" tests/gpu/torch_pipes.py
part "first message" 20 "$python" tests/gpu/torch_memory.py
part "times" 60 "$python" tests/gpu/torch_times.py
part "feeds" 60 "$python" tests/gpu/torch_feeds.py
part "topics" 30 "$python" tests/gpu/torch_topics.py
tensordicts

if ! command -v nvidia-cuda-mps-control >/dev/null; then
  row "all parts under MPS" "no nvidia-cuda-mps-control" "-" "not run"
elif # the process name, as the kernel truncates it
  pgrep -x nvidia-cuda-mps >/dev/null 2>&1 || [ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ]; then
  row "all parts under MPS" "a daemon of somebody else runs" "-" "not run"
else
  CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
  CUDA_MPS_LOG_DIRECTORY=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  if timeout 10 nvidia-cuda-mps-control -d; then
    started_daemon=yes
    mode=MPS
    bench
    part "times" 60 "$python" tests/gpu/torch_times.py
    tensordicts
    part "topics" 30 "$python" tests/gpu/torch_topics.py
    part "contents" 90 "$python" tests/gpu/torch_pipes.py --without-death
    stop_daemon
  else
    row "all parts under MPS" "the daemon does not start" "-" "not run"
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  fi
fi
