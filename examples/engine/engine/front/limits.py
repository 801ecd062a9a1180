# SPDX-License-Identifier: Apache-2.0
"""The limits of one client at the front, and the timeouts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Tests use smaller ones."""

    connections: int = 1024  # if RLIMIT_NOFILE permits so many
    header_s: float = 10.0  # for a request's header to arrive
    idle_s: float = 75.0  # between two requests of a connection, and for a reader to take more of an answer
    body_bytes: int = 2 << 20
    bodies_bytes: int = 64 << 20  # of all arriving bodies
    body_s: float = 30.0  # for a body to arrive
    open_requests: int = 512  # of all clients, including waiting ones; one source gets a part (source.py)
    choices: int = 128  # sequences of one request: prompts times n
    unread_tokens: int = 4096  # of one request, not yet read by its client
    write_s: float = 30.0  # for a reader to take anything
    keep_alive_s: float = 10.0  # between two signs of life in a stream without tokens
    ready_s: float = 60.0  # for an engine that starts or rebuilds
    status_s: float = 5.0  # a controller that is silent for longer counts as lost
    retry_after_s: int = 2  # sent to clients
    pages: int = 32  # live pages at once
