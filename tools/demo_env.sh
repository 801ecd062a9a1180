#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo_env.sh: makes build/demo/venv, the virtual environment that the brain of `make demo` needs:
# NumPy, scikit-learn, and what compiles the extension module. 240 MB; made again only when its
# versions, those of the tests, changed.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/demo
mkdir -p "$folder"
grep -E '^(cloudpickle|joblib|nanobind|narwhals|numpy|scikit-learn|scipy|threadpoolctl|typing_extensions)==' \
  tests/python/requirements.txt >"$folder/venv.wanted"
if ! cmp -s "$folder/venv.wanted" "$folder/venv.made"; then
  rm -f "$folder/venv.made"
  python3 -m venv --clear "$folder/venv"
  # Python compiles what it imports; to compile all of scipy takes half a minute.
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
    -r "$folder/venv.wanted"
  mv "$folder/venv.wanted" "$folder/venv.made"
fi
