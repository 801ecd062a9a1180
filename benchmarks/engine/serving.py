# SPDX-License-Identifier: Apache-2.0
"""Runs the engine at (1,1,1), with its controller and worker as in `make engine`, and sends requests over the front's
pipe. At most 8 requests run at once."""

from __future__ import annotations

import argparse

from client import Engine
from asked import TOGETHER, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--controller-program", required=True)
    options = parser.parse_args()
    with Engine(options.controller_program, "1,1,1", "--step-sequences", str(TOGETHER)) as engine:
        answer("engine", engine.complete)


if __name__ == "__main__":
    main()
