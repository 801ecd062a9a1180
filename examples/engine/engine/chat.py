# SPDX-License-Identifier: Apache-2.0
"""python -m engine.chat [--url URL]: a conversation with the engine in a terminal.

/reset starts a new one, /quit ends; Ctrl-C stops the answer.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import urllib.parse
from collections.abc import Iterator
from typing import Any

_CONNECT_S = 10.0
Message = dict[str, str]


class ChatError(Exception):
    """The engine's error message in place of an answer."""


class Endpoint:
    def __init__(self, url: str) -> None:
        try:
            found = urllib.parse.urlsplit(url)
            port = found.port or 80
        except ValueError:  # a port beyond 65535
            found = None
        if found is None or found.scheme != "http" or found.hostname is None:
            raise ChatError(f"{url!r} is no address; legal is one such as http://127.0.0.1:8000")
        self._host, self._port = found.hostname, port

    def model(self) -> str:
        """Returns the first available model."""
        connection = self._connect()
        connection.request("GET", "/v1/models")
        try:
            return str(_checked(connection.getresponse())["data"][0]["id"])
        finally:
            connection.close()

    def answer(self, model: str, messages: list[Message], options: dict[str, float]) -> Iterator[str]:
        """Yields text as it arrives. Closing the iterator ends the request: the engine stops computing it."""
        connection = self._connect()
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(
                {"model": model, "messages": messages, "stream": True, **options}),
                {"Content-Type": "application/json"})
            reply = connection.getresponse()
            if reply.status != 200:
                _checked(reply)
            yield from _deltas(reply)
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT_S)
        try:
            connection.connect()
        except OSError as error:
            raise ChatError(f"nobody is at {self._host}:{self._port} ({error}); start the engine: make engine") from None
        connection.sock.settimeout(None)  # an engine that rebuilds needs time, and Ctrl-C ends the wait
        return connection


def _checked(reply: http.client.HTTPResponse) -> Any:
    said = json.loads(reply.read())
    if reply.status != 200:
        raise ChatError(str(said["error"]["message"]))
    return said


def _deltas(reply: http.client.HTTPResponse) -> Iterator[str]:
    for line in reply:
        if not line.startswith(b"data: ") or line == b"data: [DONE]\n":
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise ChatError(str(event["error"]["message"]))
        yield event["choices"][0]["delta"].get("content") or ""


class Chat:
    """The messages so far, and the next answer."""

    def __init__(self, endpoint: Endpoint, system: str, options: dict[str, float]) -> None:
        self._endpoint, self._options = endpoint, options
        self._system: list[Message] = [{"role": "system", "content": system}] if system else []
        self._model = endpoint.model()
        self.messages = list(self._system)

    def reset(self) -> None:
        self.messages = list(self._system)

    def say(self, text: str) -> None:
        """Prints the answer as it arrives. Keeps the received part of a stopped answer."""
        self.messages.append({"role": "user", "content": text})
        pieces: list[str] = []
        try:
            for piece in self._endpoint.answer(self._model, self.messages, self._options):
                pieces.append(piece)
                print(piece, end="", flush=True)
            print()
        except KeyboardInterrupt:
            print("\n(stopped)")
        except (ChatError, OSError, http.client.HTTPException) as error:
            print(f"\n({error})")
        if pieces:
            self.messages.append({"role": "assistant", "content": "".join(pieces)})
        else:
            self.messages.pop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="engine.chat", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the engine is")
    parser.add_argument("--system", default="", help="what the model is told before all")
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--max-tokens", type=int, default=400, help="of an answer")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    try:
        chat = Chat(Endpoint(arguments.url), arguments.system,
                    {"temperature": arguments.temperature, "max_completion_tokens": arguments.max_tokens})
    except ChatError as error:
        print(f"chat: {error}", file=sys.stderr)
        return 1
    print("/reset begins a new conversation, /quit ends; Ctrl-C stops the answer")
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print("\n/quit ends")
            continue
        if text == "/quit":
            return 0
        if text == "/reset":
            chat.reset()
        elif text.startswith("/"):
            print("legal are /reset and /quit")
        elif text:
            chat.say(text)


if __name__ == "__main__":
    sys.exit(main())
