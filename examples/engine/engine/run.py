# SPDX-License-Identifier: Apache-2.0
"""Starts the engine, and ends it at Ctrl-C: the controller, which starts the workers, and the HTTP front.

python -m engine.run --controller-program FILE [--layout TP,PP,KVP] [--port N] [--blocks N] [--cpp-stage]
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import tendon

from . import convert
from . import layout as layouts
from .config import LlamaConfig
from .processes import Process
from .step import BLOCK_SIZE
from .tokenizer import Tokenizer

MODEL = "SmolLM2-135M-Instruct"
_LOOK_S = 0.2
_PATIENCE_S = 40.0  # the controller brings to their end what it has accepted, and ends its workers
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """Ctrl-C, SIGTERM, or a terminal that was closed."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make engine ENGINE_ARGS=...", description="The engine.")
    parser.add_argument("--layout", default="1,1,1", metavar="TP,PP,KVP",
                        help="ways to split: tensors, layers, keys and values; TP is 1 or 3 (default: 1,1,1)")
    parser.add_argument("--port", type=int, default=8000, help="of 127.0.0.1; 0: one that is free (default: 8000)")
    parser.add_argument("--blocks", type=int, help=f"of keys and values on each rank, {BLOCK_SIZE} tokens each "
                        "(default: one whole context over the KV ranks)")
    parser.add_argument("--checkpoint", type=Path, help="the converted file; default: made once, in the user's cache")
    parser.add_argument("--cpp-stage", action="store_true",
                        help="the last stage runs in the worker in C++; for the layout 1,2,1 alone")
    parser.add_argument("--worker-program", type=Path, help=argparse.SUPPRESS)  # that in C++
    parser.add_argument("--controller-program", type=Path, required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def _check_cpp_stage(arguments: argparse.Namespace, layout: tendon.ParallelLayout) -> None:
    if (layout.tensor, layout.pipeline, layout.kv) != (1, 2, 1):
        raise ValueError(f"--cpp-stage: the worker in C++ runs the last stage of the layout 1,2,1, and this one is "
                         f"{arguments.layout}; give --layout 1,2,1, or leave --cpp-stage out")
    if arguments.worker_program is None or not os.access(arguments.worker_program, os.X_OK):
        raise ValueError(f"--cpp-stage: there is no worker in C++ at {arguments.worker_program}: it is built where there "
                         "is Eigen; run tools/setup.sh engine, and build engine_worker")


def _controller(arguments: argparse.Namespace, layout: tendon.ParallelLayout, config: LlamaConfig,
                checkpoint: Path) -> Process:
    blocks = arguments.blocks or -(-config.context // BLOCK_SIZE // layout.kv)
    said = f"--controller {{address}} --rank {{rank}} --layout {arguments.layout} --blocks {blocks}"
    # It cuts a command at blanks, so the paths are those from here.
    worker = f"{os.path.relpath(sys.executable)} -m engine.worker {said}"
    if arguments.checkpoint is not None:
        worker += f" --checkpoint {os.path.relpath(checkpoint)}"
    last_stage = []
    if arguments.cpp_stage:
        last_stage = ["--start-last-stage", f"{os.path.relpath(arguments.worker_program)} {said} "
                      f"--checkpoint {os.path.relpath(checkpoint)}"]
    return Process("the controller", [
        str(arguments.controller_program), "--front", "127.0.0.1:0", "--layout", arguments.layout,
        "--blocks", str(blocks), "--context", str(config.context),
        "--vocabulary", str(config.vocabulary), "--eos", str(Tokenizer.open(checkpoint).eos_token_id),
        "--model", MODEL, "--start-workers", worker,
        "--nursery", f"{os.path.relpath(sys.executable)} -m engine.nursery", *last_stage])


def _front(arguments: argparse.Namespace, address: str, checkpoint: Path) -> Process:
    return Process("the HTTP front", [
        sys.executable, "-m", "engine.front", "--controller", address, "--port", str(arguments.port),
        "--checkpoint", str(checkpoint), "--model", MODEL])


def _running(url: str) -> bool:
    """Whether the engine takes requests."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _raise_ended(number: int, frame: FrameType | None) -> None:
    """For the first signal; the others change nothing, because all is being ended."""
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise Ended


def _serve(arguments: argparse.Namespace, processes: list[Process]) -> None:
    """Until Ended, or one of the processes has ended (ChildProcessError)."""
    begun = time.monotonic()
    layout = layouts.parse(arguments.layout)
    if arguments.checkpoint is None and not convert.checkpoint_path().is_file():
        print("engine: converting the weights, once", flush=True)
    checkpoint = arguments.checkpoint or convert.convert_once()
    config = LlamaConfig.open(checkpoint)
    layouts.check(config, layout)
    if arguments.cpp_stage:
        _check_cpp_stage(arguments, layout)
    controller = _controller(arguments, layout, config, checkpoint)
    processes.append(controller)
    front = _front(arguments, controller.said("front "), checkpoint)
    processes.append(front)
    url = front.said("engine: ")
    print(f"engine: {layout.world_size} workers start; watch them: {url}/", flush=True)
    ready = False
    while True:
        for process in processes:
            process.check()
        if not ready and _running(url):
            ready = True
            print(_where_to_look(url, time.monotonic() - begun), flush=True)
        time.sleep(_LOOK_S)


def _where_to_look(url: str, seconds: float) -> str:
    return f"""engine: ready after {seconds:.1f} s
   live page     {url}/
   OpenAI's API  {url}/v1    for example: curl {url}/v1/chat/completions -H 'Content-Type: application/json' \\
                   -d '{{"model":"{MODEL}","messages":[{{"role":"user","content":"What is a tendon?"}}]}}'
   chat          PYTHONPATH=examples/engine {os.path.relpath(sys.executable)} -m engine.chat --url {url}
   numbers       {url}/metrics and {url}/health
   Ctrl-C ends all of it"""


def main() -> int:
    arguments = _arguments()
    processes: list[Process] = []
    code = 0
    for number in _SIGNALS:
        signal.signal(number, _raise_ended)
    try:
        _serve(arguments, processes)
    except Ended:
        print("\nengine: ending", flush=True)
    except (ValueError, OSError) as error:
        print(f"engine: {error}", file=sys.stderr)
        code = 1
    finally:
        # The front first, so that nothing new comes to the controller.
        for process in reversed(processes):
            process.end(_PATIENCE_S)
    return code


if __name__ == "__main__":
    sys.exit(main())
