# SPDX-License-Identifier: Apache-2.0
"""The common command-line parser: an error is one line."""

from __future__ import annotations

import argparse
from typing import NoReturn


MOST_BLOCKS = 1 << 24  # the controller has the same limit


class Parser(argparse.ArgumentParser):
    """Works as argparse's parser, but does not print its usage before each error."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; --help lists all\n")


def _whole(text: str, least: int, most: int, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no {what}; legal is {least} to {most}")
    return int(text)


# Types for argparse.


def port(text: str) -> int:
    return _whole(text, 0, 65535, "port")


def seconds(text: str) -> int:
    return _whole(text, 1, 86400, "number of seconds")


def blocks(text: str) -> int:
    return _whole(text, 1, MOST_BLOCKS, "number of blocks")
