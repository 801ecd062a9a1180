#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh [plan]: runs `make demo`. It lists its installations and downloads and the time they take, installs and
# builds. Then it shows two things: a checkpoint that is sent between two processes, which needs only the command, and a
# distributed brain. `plan` only lists. FABRIC=static needs no Rust. With DEMO_NO_INSTALL=1 it installs and downloads
# nothing, and fails if something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

fabric=${FABRIC:-zenoh}
case $fabric in
  zenoh) groups=(demo zenoh) finding="find each other by Zenoh" second="; then a router dies"
         build="about 3 minutes" rest="4 minutes" ;;
  static) groups=(demo) finding="are told of each other's addresses" second=
          build="about 1 minute" rest="2 minutes" ;;
  *) echo "make demo: FABRIC is '$fabric'; it may be zenoh (the default) or static (no Rust)" >&2 && exit 2 ;;
esac
no_install=${DEMO_NO_INSTALL:-}
[ "$no_install" != 0 ] || no_install=

folder=build/demo
python=$PWD/$folder/venv/bin/python
begun=$SECONDS
title() { printf '\n== %s\n' "$*"; }
# folded HEAD TEXT...: prints a paragraph that begins with HEAD and is indented by three columns.
folded() {
  local head=$1
  shift
  fold -s -w 92 <<<"$*" | sed "1s/^/   $head/; 2,\$s/^/   ${head//?/ }/; s/ *\$//"
}

# The profile in which cargo builds the crate of Zenoh: quick, unless an archive of another build exists.
profile=quick
# Succeeds if the archive of the crate exists.
has_crate() {
  local cargo archive
  cargo=$(tools/find_cargo.sh) || return 1
  for profile in release quick; do
    archive=$(python3 tools/zenoh_crate.py path "$cargo" --profile $profile 2>/dev/null) || true
    if [ -e "$archive" ]; then return 0; fi
  done
  return 1
}

# debian_plan GROUP...: prints the missing packages, and the size of apt's download.
debian_plan() {
  local missing size
  missing=$(tools/setup.sh --missing "$@" 2>/dev/null)
  [ -n "$missing" ] || return 0
  # shellcheck disable=SC2086  # one word per package
  size=$(apt-get install --print-uris -y -qq --no-install-recommends $missing 2>/dev/null |
         awk '{sum += $3} END {if (sum) printf "%.0f MB", sum / 1e6}' || true)
  echo "Debian packages: $missing; a download of ${size:-about 100 MB}"
}

crates_plan() {
  has_crate || echo "crates of Rust: zenoh" \
    "$(sed -n 's/^zenoh \([0-9.]*\) .*/\1/p' rust/tendon-zenoh/crates.txt) and what it needs; a download of 30 MB"
}

# plan_of PART: prints one line for each missing thing.
plan_of() {
  if [ "$1" = first ]; then
    debian_plan build
    tools/demo_checkpoint.sh plan
  else
    debian_plan "${groups[@]}"
    tools/demo_env.sh plan
    if [ "$fabric" = zenoh ]; then crates_plan; fi
  fi
}

plan() {
  local first second_part
  first=$(plan_of first)
  second_part=$(plan_of second)
  echo "== the plan, with the time that it takes on 2 CPUs the first time"
  folded "1. " "The command \`tendon\` is built in $folder. A model checkpoint moves between two processes, on" \
    "every path; then a sender is killed: 3 minutes."
  folded "2. " "The Python module and the nodes of a distributed brain are built. The nodes $finding; a sensor" \
    "joins, one node is stopped, one killed, which comes back$second. The end is a page with plots: $rest" \
    "more."
  if [ -n "$first$second_part" ]; then
    if [ -n "$no_install" ]; then
      echo "   DEMO_NO_INSTALL=1: nothing is installed or downloaded of:"
    else
      echo "   These are installed and downloaded:"
    fi
    local line
    while read -r line; do
      [ -z "$line" ] || folded "- " "$line"
    done <<<"$first"$'\n'"$second_part"
  else
    echo "   Nothing has to be installed or downloaded."
  fi
}

# Fails and lists all missing things, if nothing may be installed.
check_what_is_there() {
  local missing=() packages lacks cargo debian
  packages=$(tools/setup.sh --missing build 2>/dev/null)
  [ -z "$packages" ] || missing+=("Debian packages: $packages")
  debian=$packages
  if [ -n "$(tools/demo_env.sh plan)" ]; then
    python=$(command -v python3 || true)
    lacks=$(tools/demo_env.sh lacks "$python")
    [ -z "$lacks" ] || missing+=("Python packages, for ${python:-python3, which is missing too}: $lacks. Or run
    tools/demo_env.sh, which downloads them to $folder/venv")
  fi
  if [ "$fabric" = zenoh ] && ! has_crate; then
    packages=$(tools/setup.sh --missing zenoh 2>/dev/null)
    if [ -n "$packages" ]; then
      missing+=("Debian packages: $packages (FABRIC=static does without)")
      debian="$debian${debian:+ }$packages"
    elif ! cargo=$(tools/find_cargo.sh) || ! python3 tools/zenoh_crate.py fetch "$cargo" >/dev/null 2>&1; then
      missing+=("crates of Rust (FABRIC=static does without):
    tools/zenoh_crate.py fetch ${cargo:-CARGO}")
    fi
  fi
  [ ${#missing[@]} -ne 0 ] || return 0
  {
    echo "make demo: these are missing, and DEMO_NO_INSTALL=1 forbids installing them:"
    printf '  %s\n' "${missing[@]}"
    [ -z "$debian" ] || echo "  sudo apt-get install -y --no-install-recommends $debian"
    echo "Provide them, or run \`make demo\` without DEMO_NO_INSTALL."
  } >&2
  exit 1
}

plan
[ "${1:-}" != plan ] || exit 0
if [ -n "$no_install" ]; then
  export CARGO_NET_OFFLINE=true
  check_what_is_there
elif [ -t 1 ]; then
  # Only if a user can read it and press a key.
  echo "   It begins in 5 s; Ctrl-C stops it."
  sleep 5
fi

# ---- the first result
[ -n "$no_install" ] || tools/setup.sh build
fetching=
preparing=
if [ -z "$no_install" ]; then
  # The download has a time limit; after it, random weights are used.
  timeout 170 tools/demo_checkpoint.sh fetch >/dev/null 2>&1 &
  fetching=$!
  if [ -z "$(tools/setup.sh --missing demo 2>/dev/null)" ]; then
    nice -n 19 tools/demo_env.sh >/dev/null 2>&1 & # a failure shows below, where it is done again
    preparing=$!
  fi
fi
# shellcheck disable=SC2086  # none or one word each
trap 'kill $fetching $preparing 2>/dev/null || true' EXIT

# The crate of Zenoh takes minutes to build, and the command does not need it at first.
options=(-DTENDON_ZENOH=OFF -DTENDON_BUILD_PYTHON=OFF)
if [ "$fabric" = zenoh ] && has_crate; then
  options=(-DTENDON_ZENOH=ON -DTENDON_ZENOH_PROFILE=$profile "-DTENDON_CARGO=$(tools/find_cargo.sh)"
           -DTENDON_BUILD_PYTHON=OFF)
fi
cmake --preset demo --no-warn-unused-cli "${options[@]}" >/dev/null
tools/build.sh demo tendon_cli bench_processes
if [ -n "$fetching" ]; then wait "$fetching" || true; fi
tools/demo_checkpoint.sh show
echo "   $((SECONDS - begun)) s after the start"

# ---- the rest
title "the rest is built: $build the first time"
if [ -n "$preparing" ]; then wait "$preparing" || true; fi
if [ -z "$no_install" ]; then
  tools/setup.sh "${groups[@]}"
  tools/demo_env.sh
fi
zenoh=(-DTENDON_ZENOH=OFF)
if [ "$fabric" = zenoh ]; then
  cargo=$(tools/find_cargo.sh) || {
    echo "make demo: no cargo that is new enough; FABRIC=static does without" >&2
    exit 1
  }
  zenoh=(-DTENDON_ZENOH=ON -DTENDON_ZENOH_PROFILE=$profile "-DTENDON_CARGO=$cargo")
fi
cmake --preset demo "${zenoh[@]}" -DTENDON_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$python" >/dev/null
tools/build.sh demo tendon_cli tendon_python brain
DEMO_PYTHON=$python tools/demo_brain.sh --fabric "$fabric"
echo "   $((SECONDS - begun)) s after the start"

title "try next"
tendon=$folder/bin/tendon
model=$folder/model.safetensors
[ -e "$model" ] || model=$folder/generated.safetensors
cat <<TEXT
   $tendon recv 127.0.0.1:7000 -o /tmp        and, in another terminal:
   $tendon send $model 127.0.0.1:7000
   $tendon bench pipe                          latency and bandwidth by size
   $tendon bench allreduce                     two ranks of a group, by size
   $tendon launch -n 3 -- PROGRAM              three ranks; README, section Groups
   $tendon explain TD-E0107                    what an error means and what to do
   $tendon info                                what this build and machine offer
TEXT
