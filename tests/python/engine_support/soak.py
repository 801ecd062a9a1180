# SPDX-License-Identifier: Apache-2.0
"""The engine under kills, stops and hangs: every answer is that of an undisturbed engine, or an error with a name.

    python -m engine_support.soak --controller-program FILE [--layout 3,2,1] [--seconds 600] [--seed N]
                                  [--hang-timeout 10] [--clients 3]

Clients send requests all the time. Workers are killed, stopped for ever and for a while, made to spin under Python's
lock, to sleep and to leave out a step, at random moments, several at once and also while a roster is formed. The exit
code is 0 if nothing was wrong; `make engine-soak` sets it up.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from . import ENGINE
from .hanging_nursery import LEAVE_OUT, SLEEP, SPIN
from .soak_ledger import Ledger, is_alive

MODEL = "SmolLM2-135M-Instruct"
MARK = "TENDON_SOAK_MARK"
PROMPTS = (("Once upon a time", 40), ("The capital of France is", 24), ("Water boils at", 60),
           ("word " * 400, 12), ("def fibonacci(n):\n", 48))
PATIENCE_S = 300.0  # for an answer, or for an engine that runs again: if it takes longer, something hangs for good
# The faults of a worker: how often each happens, in parts of all, and the signal.
KINDS = {"kill": (8, signal.SIGKILL), "stop": (3, signal.SIGSTOP), "spin": (2, SPIN), "sleep": (2, SLEEP),
         "leave out": (2, LEAVE_OUT), "pause": (2, signal.SIGSTOP)}
# Starts a real controller, whose workers hang on demand.
CONTROLLER = """#!{python}
import os, sys
words = sys.argv[1:]
at = words.index("--nursery") + 1
words[at] = words[at].replace("-m engine.nursery", "-m engine_support.hanging_nursery")
os.execv({program!r}, [{program!r}, *words])
"""


class Failed(Exception):
    """The engine has ended, or did not recover."""


class Soaked:
    """The engine, started as `make engine` starts it."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        controller = folder / "controller"
        controller.write_text(CONTROLLER.format(python=sys.executable,
                                                program=str(arguments.controller_program.resolve())))
        controller.chmod(0o755)
        self._log = (folder / "log").open("w+")
        paths = [str(ENGINE), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine.run", "--controller-program", controller, "--layout", arguments.layout,
             "--port", "0", "--hang-timeout", str(arguments.hang_timeout)],
            stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, MARK: self.mark, "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                 "TENDON_RUNTIME_DIR": str(folder), "TENDON_LOG": "error", "PYTHONDONTWRITEBYTECODE": "1"})
        self.port = 0
        for line in self.process.stdout:
            if "live page" in line:
                self.port = int(line.rsplit(":", 1)[1].strip(" /\n"))
                break
        if not self.port:
            raise Failed(f"the engine did not start:\n{self.log()}")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def log(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def status(self) -> dict:
        """The next status that is sent to the live page."""
        connection = self.connection()
        try:
            connection.request("GET", "/events")
            reply = connection.getresponse()
            for line in reply:
                if line.startswith(b"data: ") and b'"workers"' in line:
                    return json.loads(line[6:])
            raise Failed("the events of the live page ended")
        except OSError as error:
            raise Failed(f"the live page: {error}") from None
        finally:
            connection.close()

    def until(self, ledger: Ledger, condition, what: str) -> dict:
        end = time.monotonic() + PATIENCE_S
        while True:
            if self.process.poll() is not None:
                raise Failed(f"the engine ended by itself, exit code {self.process.returncode}")
            status = self.status()
            ledger.on_deaths(status["deaths"])
            if condition(status):
                return status
            if time.monotonic() > end:
                raise Failed(f"after {PATIENCE_S:g} s still not {what}: {status['state']}, "
                             f"{[worker['waiting'] for worker in status['workers']]}")
            time.sleep(0.1)

    def running(self, ledger: Ledger) -> dict:
        return self.until(ledger, lambda status: status["state"] == "running", "running")

    def end(self, ledger: Ledger) -> None:
        """Ends the engine; nothing of it may be left."""
        self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
            ledger.fault("the engine did not end at SIGINT")
        if code != 0:
            ledger.fault(f"the engine ended with exit code {code}")
        if left := self.processes():
            ledger.fault(f"processes are left: {left}")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """All processes that the engine started, found by a mark in their environment."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and is_alive(int(entry.name)):
                with contextlib.suppress(OSError):
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100]
        return found


def ask(engine: Soaked, prompt: str, tokens: int, ledger: Ledger) -> str | None:
    """The text of a stream; None where it ended with an error, which the ledger has."""
    connection = engine.connection()
    text, code, message = "", "no_end", "the stream ended before [DONE]"
    begun = time.monotonic()
    try:
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
             "ignore_eos": True}), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            error = json.loads(reply.read())["error"]
            ledger.on_error(prompt, error["code"], error["message"])
            return None
        for line in reply:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                return text if code == "no_end" else ledger.on_error(prompt, code, message)
            said = json.loads(line[6:])
            if "error" in said:
                code, message = said["error"]["code"], said["error"]["message"]
                continue
            ledger.on_pause(time.monotonic() - begun)
            begun = time.monotonic()
            text += said["choices"][0]["text"]
    except (OSError, http.client.HTTPException) as error:
        code, message = "connection", f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    ledger.on_error(prompt, code, message)
    return None


def ask_always(engine: Soaked, wanted: dict[str, str], ledger: Ledger, ended: threading.Event, seed: int) -> None:
    chance = random.Random(seed)
    while not ended.is_set():
        prompt, tokens = chance.choice(PROMPTS)
        text = ask(engine, prompt, tokens, ledger)
        if text is not None:
            ledger.on_answer(prompt, text, wanted[prompt])
        else:
            ended.wait(0.5)


def pids_of(status: dict) -> dict[int, int]:
    return {worker["rank"]: int(worker["identity"].split("pid ")[1].split(")")[0].split(",")[0])
            for worker in status["workers"] if worker["alive"] and "pid " in worker["identity"]}


def disturb(engine: Soaked, status: dict, chance: random.Random, hang_timeout: float, ledger: Ledger) -> str:
    """Disturbs one worker, or kills several. Returns a description."""
    pids = pids_of(status)
    if not pids:
        return "nobody is there"
    kind = chance.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    count = chance.randint(2, len(pids)) if kind == "kill" and chance.random() < 0.25 and len(pids) > 1 else 1
    ranks = sorted(chance.sample(sorted(pids), count))
    name = kind if count == 1 else "kill several"
    # A worker that learns of a roster's end before its step does not hang in it.
    ledger.on_event(name, ranks, may_die=kind != "pause", must_die=kind in ("kill", "stop"))
    for rank in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[rank], KINDS[kind][1])
    if kind == "pause":
        time.sleep(chance.uniform(0.2, hang_timeout / 2))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[ranks[0]], signal.SIGCONT)
    return f"{name} {ranks}"


def soak(engine: Soaked, arguments: argparse.Namespace, ledger: Ledger) -> None:
    chance = random.Random(arguments.seed)
    wanted = {}
    for prompt, tokens in PROMPTS:
        wanted[prompt] = ask(engine, prompt, tokens, ledger)
    if None in wanted.values():
        raise Failed("the undisturbed engine did not answer")
    ended = threading.Event()
    clients = [threading.Thread(target=ask_always, args=(engine, wanted, ledger, ended, arguments.seed + 1 + number))
               for number in range(arguments.clients)]
    for client in clients:
        client.start()
    begun = time.monotonic()
    try:
        while time.monotonic() < begun + arguments.seconds:
            time.sleep(chance.uniform(0.5, 6))
            status = engine.running(ledger)
            roster = status["roster"]
            did = [disturb(engine, status, chance, arguments.hang_timeout, ledger)]
            if chance.random() < 0.2:  # another one before the first is over
                time.sleep(chance.uniform(0, arguments.hang_timeout + 2))
                did.append(disturb(engine, engine.status(), chance, arguments.hang_timeout, ledger))
            owed = ledger.owes()
            engine.until(ledger, lambda status: status["state"] == "running" and not ledger.owes(), "over it")
            if owed:
                ledger.on_back()
            # A step needs all workers. After all the faults, one complete answer proves that no worker hangs any more.
            while not answered(engine, chance, wanted, ledger):
                pass
            status = engine.running(ledger)
            ledger.on_quiet()
            print(f"{time.monotonic() - begun:6.1f} s: {', '.join(did)}; rosters {roster} to {status['roster']}",
                  flush=True)
    finally:
        ended.set()
        for client in clients:
            client.join()


def answered(engine: Soaked, chance: random.Random, wanted: dict[str, str], ledger: Ledger) -> bool:
    """Sends one request; raises Failed if the engine has ended."""
    engine.running(ledger)
    prompt, tokens = chance.choice(PROMPTS)
    text = ask(engine, prompt, tokens, ledger)
    if text is not None:
        ledger.on_answer(prompt, text, wanted[prompt])
    return text is not None


def main() -> int:
    parser = argparse.ArgumentParser(prog="engine_support.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--controller-program", type=Path, required=True)
    parser.add_argument("--layout", default="3,2,1")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("TENDON_SOAK_SECONDS", 600)))
    parser.add_argument("--seed", type=int,
                        default=int(os.environ.get("TENDON_SOAK_SEED", random.SystemRandom().randrange(2**31))))
    parser.add_argument("--hang-timeout", type=int, default=10)
    parser.add_argument("--clients", type=int, default=3)
    arguments = parser.parse_args()
    print(f"soak: layout {arguments.layout}, {arguments.seconds:g} s, --seed {arguments.seed}, "
          f"hang timeout {arguments.hang_timeout} s", flush=True)
    ledger = Ledger(arguments.hang_timeout, lambda said: print(said, flush=True))
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.chmod(folder, 0o700)
        engine = Soaked(arguments, Path(folder))
        try:
            soak(engine, arguments, ledger)
        except Failed as error:
            ledger.fault(str(error))
        finally:
            engine.end(ledger)
        if ledger.faults:
            print(f"--- the engine said\n{engine.log()[-8000:]}")
    print(ledger.summary())
    return bool(ledger.faults)


if __name__ == "__main__":
    sys.exit(main())
