#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the environment with torch and the wheel, then compares the backend "tendon" of torch.distributed with gloo
# (passes its flags to tools/bench_torch.py).
set -euo pipefail
cd "$(dirname "$0")/.."

tools/python_env.sh
exec build/python/venv/bin/python tools/bench_torch.py "$@"
