# SPDX-License-Identifier: Apache-2.0
"""What one client may have of the front, and how long anything is waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Tests give smaller ones."""

    connections: int = 1024  # where RLIMIT_NOFILE allows so many
    header_s: float = 10.0  # for the header of a request to arrive
    idle_s: float = 75.0  # between two requests of a connection, and for a reader to take more of an answer
    body_bytes: int = 2 << 20
    bodies_bytes: int = 64 << 20  # of all that arrive
    body_s: float = 30.0  # for a body to arrive
    open_requests: int = 512  # of all clients together, also those that wait; one source has a part (source.py)
    choices: int = 128  # sequences of one request: prompts times n
    unread_tokens: int = 4096  # of one request, which its reader has not taken
    write_s: float = 30.0  # for a reader to take anything at all
    keep_alive_s: float = 10.0  # between two signs of life in a stream without tokens
    ready_s: float = 60.0  # for an engine that starts or rebuilds
    status_s: float = 5.0  # after which a controller that says nothing counts as gone
    retry_after_s: int = 2  # what clients are told
    pages: int = 32  # live pages at once
