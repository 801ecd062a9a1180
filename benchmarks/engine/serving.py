# SPDX-License-Identifier: Apache-2.0
"""The engine at (1,1,1), its controller and its worker as `make engine` has them, asked over the pipe of the front.
At most 8 requests run at once."""

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
