#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh: all of `make demo`: installs what is missing, builds, and shows two things. FABRIC=static
# does without Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

fabric=${FABRIC:-zenoh}
case $fabric in
  zenoh) finding="find each other by Zenoh, which cargo builds once" second="; then a router dies" ;;
  static) finding="are told of each other's addresses" second= ;;
  *) echo "make demo: FABRIC is '$fabric'; it may be zenoh (the default) or static (no Rust)" >&2 && exit 2 ;;
esac

cat <<PLAN
== the plan
   1. Debian packages that are missing, NumPy and scikit-learn in build/demo/venv (240 MB)
   2. the library, the command, the Python module and the nodes of the brain are built in build/demo:
      some minutes the first time
   3. a distributed brain: its nodes $finding; a sensor joins, one of them is
      stopped, one killed, which comes back$second; at the end a page with plots
   4. a model checkpoint moves between two processes, on every path, and a sender is killed
PLAN
tools/setup.sh build demo

zenoh=(-DTENDON_ZENOH=OFF)
if [ "$fabric" = zenoh ]; then
  tools/setup.sh zenoh
  cargo=$(tools/find_cargo.sh) || { echo "make demo: no cargo that is new enough; FABRIC=static does without" >&2; exit 1; }
  zenoh=(-DTENDON_ZENOH=ON "-DTENDON_CARGO=$cargo")
fi

# What is fetched meanwhile is needed at the end only; without a network something takes its place.
tools/demo_checkpoint.sh fetch >/dev/null 2>&1 &
fetching=$!
trap 'kill $fetching 2>/dev/null || true' EXIT
tools/demo_env.sh
cmake --preset demo "${zenoh[@]}" >/dev/null
tools/build.sh demo tendon_cli tendon_python brain
tools/demo_brain.sh --fabric "$fabric"
wait $fetching || true
tools/demo_checkpoint.sh
