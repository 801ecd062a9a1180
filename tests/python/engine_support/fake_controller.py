# SPDX-License-Identifier: Apache-2.0
"""The controller's side of the pipe to the front, with scripted tokens instead of workers."""

import json
import threading
from collections.abc import Callable, Iterable
from queue import Queue

import tendon

Message = dict[str, object]
Reply = Callable[[Message], Iterable[Message | bytes]]


def accepted(request: str) -> Message:
    return {"kind": "accepted", "id": request}


def tokens(request: str, ids: Iterable[int], logprobs: list[Message] | None = None) -> Message:
    said: Message = {"kind": "tokens", "id": request, "tokens": list(ids)}
    return said if logprobs is None else {**said, "logprobs": logprobs}


def done(request: str, reason: str, **rest: object) -> Message:
    return {"kind": "done", "id": request, "reason": reason,
            "usage": {"prompt_tokens": 1, "completion_tokens": 1}, **rest}


def status(state: str = "running", **changed: object) -> Message:
    return {"kind": "status", "state": state, "roster": 1, "layout": {"tensor": 3, "pipeline": 2, "kv": 1},
            "model": {"name": "tiny", "context": 512}, "queue": {"waiting": 2, "running": 3, "limit": 256},
            "kv": {"blocks": 64, "used": 20, "block_size": 16},
            "rate": {"tokens_per_s": 41.5, "prompt_tokens_per_s": 120.0},
            "step": {"count": 7, "ms": 20.0, "control_ms": 0.3, "compute_ms": 15.0, "wait_ms": 3.0, "move_ms": 1.7},
            "workers": [{"rank": rank, "identity": f"worker {rank}", "alive": rank != 4, "waiting": "",
                         "step_ms": {"compute": 12.0 + rank, "wait": 4.0, "move": 1.5}} for rank in range(6)],
            "deaths": [{"rank": 4, "what": "killed by SIGKILL", "at": 1.0}], **changed}


class FakeController:
    """Serves one front at a time; sends a status every 20 ms, so that nobody waits for one."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.reply: Reply = reply or (lambda submit: [accepted(str(submit["id"]))])
        self.received: Queue[Message] = Queue()  # all except submits
        self.submits: Queue[Message] = Queue()
        self.status = status()
        self.silent = False
        self._context = tendon.Context("fake controller", linger=0.1)
        self._listener = self._context.listen("127.0.0.1:0")
        self.address = self._listener.address
        self._pipe: tendon.Pipe | None = None
        self._one_sends = threading.Lock()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._serve, self._tell)]
        for thread in self._threads:
            thread.start()

    def send(self, *messages: Message | bytes) -> None:
        with self._one_sends:
            for message in messages:
                assert self._pipe is not None
                self._pipe.send(message if isinstance(message, bytes) else json.dumps(message).encode())

    def drop(self) -> None:
        """Makes the front lose its controller; the next controller that it finds is this one again."""
        pipe, self._pipe = self._pipe, None
        pipe.cancel()

    def close(self) -> None:
        self._ended.set()
        self._listener.close()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.cancel()
        for thread in self._threads:
            thread.join()
        try:
            self._context.close(5)
        except tendon.Timeout:
            pass

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                pipe = self._pipe = self._listener.accept()
                while True:
                    self._take(json.loads(bytes(pipe.recv_message(None).bytes)))
            except (tendon.Error, AssertionError):
                pass

    def _take(self, message: Message) -> None:
        if message["kind"] != "submit":
            self.received.put(message)
            return
        self.submits.put(message)
        self.send(*self.reply(message))

    def _tell(self) -> None:
        while not self._ended.wait(0.02):
            if self._pipe is not None and not self.silent:
                try:
                    self.send(self.status)
                except (tendon.Error, AssertionError):
                    pass  # the front was lost meanwhile
