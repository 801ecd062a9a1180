#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_wheel_elsewhere.sh WHEEL [FOLDER]: installs the wheel on a minimal Debian 12 in a folder, with Python and NumPy,
# without compilers and without a network, and uses it there. Needs root and debootstrap; downloads 60 MB. With FOLDER
# the system is kept for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -f "$1" ]; then
  echo "usage: tools/check_wheel_elsewhere.sh WHEEL [FOLDER]" >&2
  exit 2
fi
wheel=$(realpath "$1")
if [ "$(id -u)" -ne 0 ]; then
  echo "check_wheel_elsewhere: a system in a folder is made by root; run it as root" >&2
  exit 1
fi
if ! command -v debootstrap >/dev/null; then
  echo "check_wheel_elsewhere: debootstrap is missing; run: apt-get install -y --no-install-recommends debootstrap" >&2
  exit 1
fi

if [ $# -eq 2 ]; then
  system=$2
else
  system=$(mktemp -d)
  trap 'rm -rf "$system"' EXIT
fi
if [ ! -e "$system/usr/bin/python3" ]; then
  # Uses this machine's package mirror; if it is unknown, debootstrap's default.
  mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 2>/dev/null | awk '$1 == "bookworm" {print $2; exit}')
  echo "== elsewhere: a minimal Debian 12 with Python and NumPy"
  mkdir -p "$system"
  debootstrap --variant=minbase --include=python3,python3-numpy,python3-pip bookworm "$system" ${mirror:+"$mirror"} \
    >"$system/debootstrap.txt" 2>&1 || { tail -n 20 "$system/debootstrap.txt"; exit 1; }
fi
for program in cc c++ gcc g++ clang ld cmake; do
  if chroot "$system" sh -c "command -v $program" >/dev/null; then
    echo "check_wheel_elsewhere: the minimal system has $program: it is none that shows anything" >&2
    exit 1
  fi
done
if chroot "$system" dpkg-query -W libzmq5 libprotobuf-lite32 libhwy1 libfmt9 2>/dev/null | grep . >/dev/null; then
  echo "check_wheel_elsewhere: the minimal system has libraries that the wheel should bring" >&2
  exit 1
fi

rm -rf "$system/check"
mkdir "$system/check"
cp "$wheel" tests/install/wheel_elsewhere.py "$system/check"
echo "== elsewhere: $(basename "$wheel")"
# shellcheck disable=SC2016  # expanded inside
unshare --mount --pid --net --fork --kill-child bash -c '
  set -euo pipefail
  ip link set lo up
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  mount -t tmpfs tmpfs "$1/tmp"
  exec chroot "$1" env -i PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 sh -c "
    set -e
    cd /check
    pip install --quiet --no-index --no-deps --force-reinstall --break-system-packages \\
      --root-user-action=ignore ./*.whl
    python3 wheel_elsewhere.py"' elsewhere "$system"
echo "elsewhere: the wheel works on a Debian 12 without compilers"
