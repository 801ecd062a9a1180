#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_package.sh BUILD CXX VERSION WORK: installs BUILD below WORK and uses the result as its users
# do: by CMake and by pkg-config, static and shared, where it was installed and after it was moved.
set -euo pipefail

build=$1 cxx=$2 version=$3 work=$4
here=$(cd "$(dirname "$0")" && pwd)
series=${version%.*}

fail() {
  echo "install: $*"
  exit 1
}

run() {
  local output
  output=$("$@")
  [[ $output == "tendon $version: "*planted* ]] || fail "$1 printed: $output"
}

use_prefix() {
  prefix=$1
  export LD_LIBRARY_PATH="$prefix/lib" PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
  out=$work/use_$(basename "$prefix")
  mkdir -p "$out"
  echo "== $(basename "$prefix")"
}

with_cmake() {
  cmake -S "$here/cmake" -B "$out/cmake" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_PREFIX_PATH="$prefix" -DTENDON_WANTED="$series" -DTENDON_WITH_CONTROL="$control" >"$out/cmake.log" ||
    { cat "$out/cmake.log"; fail "the consumer does not configure"; }
  cmake --build "$out/cmake"
  run "$out/cmake/with_tendon"
  run "$out/cmake/with_tendon_shared"
  if [ "$control" = ON ]; then run "$out/cmake/with_control"; fi
}

with_pkg_config() {
  local flags
  flags=$(pkg-config "$@" --cflags --libs tendon)
  if [ "${1:-}" = --static ]; then
    # The whole archive, so that a dependency missing from the .pc file shows.
    flags=${flags/-ltendon/-Wl,--whole-archive -ltendon -Wl,--no-whole-archive}
  fi
  # shellcheck disable=SC2086  # one word per flag
  "$cxx" -std=c++20 "$here/consumer.cpp" $flags -o "$out/pkg_config"
  run "$out/pkg_config"
}

control_with_pkg_config() {
  if [ "$control" = OFF ]; then return; fi
  local flags
  flags=$(pkg-config --cflags --libs tendon_control)
  # shellcheck disable=SC2086  # one word per flag
  "$cxx" -std=c++20 "$here/control_consumer.cpp" $flags -o "$out/control_pkg_config"
  run "$out/control_pkg_config"
}

control=OFF
if grep -q '^TENDON_CONTROL_BUILT:[A-Z]*=ON$' "$build/CMakeCache.txt"; then control=ON; fi

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/installed" >/dev/null
! grep -rlF "$work" "$work/installed" --include='*.cmake' --include='*.pc' ||
  fail "these installed files name the place they were installed to"
[ -f "$work/installed/include/tendon/core/error_codes.def" ] || fail "error_codes.def is missing"

# What others wrote has its licence beside it.
doc=$work/installed/share/doc/tendon
cmp "$here/../../LICENSE" "$doc/LICENSE" || fail "LICENSE is not the repository's"
parts=("JSON for Modern C++" Highway CLI11 "{fmt}")
if [ "$control" = ON ]; then parts+=(cppzmq Protobuf); fi
if grep -q '^TENDON_IPSEC_MB_LIBRARY:[A-Z]*=/' "$build/CMakeCache.txt"; then parts+=(libipsec-mb); fi
for part in "${parts[@]}"; do
  grep -F "$part (" "$doc/THIRD_PARTY_NOTICES" >/dev/null || fail "THIRD_PARTY_NOTICES has no $part"
done
if [ -f "$work/installed/lib/libtendon_zenoh.a" ]; then
  grep '^zenoh-[0-9.]*: ' "$doc/THIRD_PARTY_NOTICES" >/dev/null || fail "THIRD_PARTY_NOTICES has no crates"
fi

# The page has each verb that --help has, and is one that man can show.
page=$work/installed/share/man/man1/tendon.1
verbs=$("$work/installed/bin/tendon" --help | awk '/^Subcommands:/ {on = 1; next} on && /^  [a-z]/ {print $1}')
[ "$(wc -w <<<"$verbs")" -gt 5 ] || fail "tendon --help lists these verbs only: $verbs"
for verb in $verbs; do
  grep -E "^\.SS $verb( |$)" "$page" >/dev/null || fail "tendon(1) has no $verb"
done
if command -v mandoc >/dev/null; then
  mandoc -T lint -W error "$page" || fail "mandoc finds faults in tendon(1)"
elif command -v groff >/dev/null; then
  [ -z "$(groff -man -Tutf8 -ww -z "$page" 2>&1)" ] || fail "groff finds faults in tendon(1)"
fi

use_prefix "$work/installed"
with_cmake
with_pkg_config
control_with_pkg_config

mv "$work/installed" "$work/moved"
use_prefix "$work/moved"
with_cmake
with_pkg_config
ldd "$out/pkg_config" | grep "libtendon.so.$series => $prefix/" >/dev/null ||
  fail "the consumer does not load the shared library by its soname"

rm "$prefix"/lib/libtendon.so*
with_pkg_config --static
echo "install: every consumer runs"
