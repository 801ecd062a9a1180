#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# torch_conformance.sh [OPTION...] [DIR]: runs torch's own tests with the backend "tendon" of torch.distributed, beside
# gloo (passes its options to tools/torch_conformance.py). DIR: a checkout of torch's repository at the tag of the
# installed release; its tests, which are in no wheel, run as well and are not copied.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/python_env.sh tests
folder=build/python/conformance
wanted=tools/conformance_requirements.txt
if ! cmp -s "$wanted" "$folder/stamp"; then
  rm -rf "$folder"
  mkdir -p "$folder"
  build/python/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder/packages" -r "$wanted"
  cp "$wanted" "$folder/stamp"
fi
export PYTHONPATH=$PWD/$folder/packages${PYTHONPATH:+:$PYTHONPATH}
exec build/python/venv/bin/python tools/torch_conformance.py "$@"
