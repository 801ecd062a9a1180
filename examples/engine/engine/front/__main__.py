# SPDX-License-Identifier: Apache-2.0
"""python -m engine.front --controller ADDRESS [--port N] [--checkpoint FILE]"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from .. import convert, flags
from ..config import LlamaConfig
from ..tokenizer import Tokenizer
from .asked import Model
from .door import allow_files
from .limits import Limits
from .serving import running

MODEL = "SmolLM2-135M-Instruct"


def _arguments() -> argparse.Namespace:
    parser = flags.Parser(prog="engine.front", description=__doc__)
    parser.add_argument("--controller", required=True, help="where the controller listens for its front")
    parser.add_argument("--port", type=flags.port, default=8000, help="of 127.0.0.1; 0: one that is free")
    parser.add_argument("--checkpoint", type=Path, help="the converted file; default: made once, in the user's cache")
    parser.add_argument("--model", default=MODEL, help="the name that requests say")
    return parser.parse_args()


async def serve(arguments: argparse.Namespace) -> None:
    """Serves until SIGINT or SIGTERM."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    checkpoint = arguments.checkpoint or convert.convert_once()
    model = Model(arguments.model, LlamaConfig.open(checkpoint).context)
    limits = Limits()
    allow_files(limits)
    async with running(arguments.controller, arguments.port, Tokenizer.open(checkpoint), model, limits) as front:
        print(f"engine: {front.url}", flush=True)
        await ended.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="engine.front: %(message)s")
    try:
        asyncio.run(serve(_arguments()))
    except OSError as error:  # for example, the port is in use
        sys.exit(f"engine.front: {error}")
