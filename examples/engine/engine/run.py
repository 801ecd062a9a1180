# SPDX-License-Identifier: Apache-2.0
"""Starts the engine, and ends it at Ctrl-C: the controller, which starts the workers, and the HTTP front.

python -m engine.run --controller-program FILE [--layout TP,PP,KVP] [--port N] [--blocks N] [--cpp-stage]
"""

from __future__ import annotations

from . import early  # before the slow imports

import argparse
import contextlib
import http.client
import os
import socket
import sys
import time
from pathlib import Path
from typing import TextIO

import tendon

from . import convert, flags
from . import layout as layouts
from .config import LlamaConfig
from .processes import Process
from .signals import Ended, Signals
from .step import BLOCK_SIZE
from .tokenizer import Tokenizer

MODEL = "SmolLM2-135M-Instruct"
_LOOK_S = 0.2
_PATIENCE_S = 40.0  # the controller finishes its accepted requests, and ends its workers


def _arguments() -> argparse.Namespace:
    parser = flags.Parser(prog="engine", usage="make engine ENGINE_ARGS=\"...\"", description="The engine.")
    parser.add_argument("--layout", default="1,1,1", metavar="TP,PP,KVP",
                        help="ways to split: tensors, layers, keys and values; TP is 1 or 3 (default: 1,1,1)")
    parser.add_argument("--port", type=flags.port, default=8000, help="of 127.0.0.1; 0: one that is free (default: 8000)")
    parser.add_argument("--blocks", type=flags.blocks, help=f"of keys and values on each rank, {BLOCK_SIZE} tokens each "
                        "(default: one whole context over the KV ranks)")
    parser.add_argument("--checkpoint", type=Path, help="the converted file; default: made once, in the user's cache")
    parser.add_argument("--hang-timeout", type=flags.seconds, default=30, metavar="SECONDS",
                        help="a worker that holds up the others for so long is replaced (default: 30)")
    parser.add_argument("--cpp-stage", action="store_true",
                        help="the last stage runs in the worker in C++; for the layout 1,2,1 alone")
    parser.add_argument("--worker-program", type=Path, help=argparse.SUPPRESS)  # the C++ worker
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
    if not os.access(arguments.controller_program, os.X_OK):
        raise ValueError(f"there is no controller at {arguments.controller_program}; build engine_controller")
    blocks = arguments.blocks or -(-config.context // BLOCK_SIZE // layout.kv)
    said = f"--controller {{address}} --rank {{rank}} --layout {arguments.layout} --blocks {blocks}"
    # The controller splits a command at blanks, so the paths are relative.
    worker = f"{os.path.relpath(sys.executable)} -m engine.worker {said}"
    if arguments.checkpoint is not None:
        worker += f" --checkpoint {os.path.relpath(checkpoint)}"
    last_stage = []
    if arguments.cpp_stage:
        last_stage = ["--start-last-stage", f"{os.path.relpath(arguments.worker_program)} {said} "
                      f"--checkpoint {os.path.relpath(checkpoint)}"]
    return Process("the controller", [
        str(arguments.controller_program), "--front", "127.0.0.1:0", "--layout", arguments.layout,
        "--blocks", str(blocks), "--context", str(config.context), "--hang-timeout", str(arguments.hang_timeout),
        "--vocabulary", str(config.vocabulary), "--eos", str(Tokenizer.open(checkpoint).eos_token_id),
        "--model", MODEL, "--start-workers", worker,
        "--nursery", f"{os.path.relpath(sys.executable)} -m engine.nursery", *last_stage])


def _front(arguments: argparse.Namespace, address: str, checkpoint: Path) -> Process:
    return Process("the HTTP front", [
        sys.executable, "-m", "engine.front", "--controller", address, "--port", str(arguments.port),
        "--checkpoint", str(checkpoint), "--model", MODEL])


def _running(url: str) -> bool:
    """Returns True if the engine accepts requests."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _check_port(port: int) -> None:
    """Fails at once if the port is in use: the front listens only seconds later."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise OSError(f"--port {port} of 127.0.0.1: {os.strerror(error.errno or 0)}; give another one, or 0 for one that is free") from None


def _serve(arguments: argparse.Namespace, processes: list[Process], signals: Signals) -> None:
    """Runs until Ended is raised, or one of the processes ends (ChildProcessError)."""
    begun = time.monotonic()
    layout = layouts.parse(arguments.layout)
    _check_port(arguments.port)
    if arguments.checkpoint is None and not convert.checkpoint_path().is_file():
        print("engine: converting the weights, once", flush=True)
    checkpoint = arguments.checkpoint or convert.convert_once()
    config = LlamaConfig.open(checkpoint)
    layouts.check(config, layout)
    if arguments.cpp_stage:
        _check_cpp_stage(arguments, layout)
    with signals.held():
        controller = _controller(arguments, layout, config, checkpoint)
        processes.append(controller)
    address = controller.said("front ")
    with signals.held():
        front = _front(arguments, address, checkpoint)
        processes.append(front)
    url = front.said("engine: ")
    print(f"engine: {layout.world_size} workers start; watch them: {url}/", flush=True)
    ready = False
    while True:
        for process in processes:
            process.check()
        if not ready and _running(url):
            ready = True
            signals.is_ready = True
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


def _say(line: str, stream: TextIO) -> None:
    """Prints a line, and continues if the terminal was closed: the children must still be ended."""
    with contextlib.suppress(OSError):
        print(line, file=stream, flush=True)


def main() -> int:
    processes: list[Process] = []

    def hurry() -> None:
        for process in processes:
            process.kill()

    signals = Signals(hurry)
    code = 0
    try:
        try:
            _serve(_arguments(), processes, signals)
        except (ValueError, OSError, tendon.Error) as error:
            code = 1
            # The second line of Tendon's errors is left out.
            _say(f"engine: {str(error).splitlines()[0]}", sys.stderr)
        finally:
            signals.ends()
    except Ended:
        _say("\nengine: ending; once more ends it at once", sys.stdout)
    # The front ends first, so that the controller gets no new requests.
    for process in reversed(processes):
        process.end(_PATIENCE_S)
    signals.close()
    if signals.number is not None and (signals.hurried or not signals.is_ready):
        return 128 + signals.number
    return code


if __name__ == "__main__":
    sys.exit(main())
