# SPDX-License-Identifier: Apache-2.0
"""Connections: their number, which one is closed for another, and how long one may be silent."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import os
import resource
from collections.abc import Iterator

from aiohttp import web

from .errors import ApiError, unavailable
from .limits import Limits
from .source import Source

ACCEPTED_AT_ONCE = 8  # by the event loop in one turn; a few turns pass until they are counted here or closed
_ON_THE_STEP = 6 * ACCEPTED_AT_ONCE
_OTHER_FILES = 32  # the pipe to the controller, and short-lived files
_FEWEST_PLACES = 32


class Phase(enum.IntEnum):
    """The state of a connection. A connection in the first states is closed first to make room."""

    HEADER = 0  # its request's header is incomplete
    BODY = 1  # its body is incomplete
    IDLE = 2  # between two requests
    BUSY = 3  # a request is being handled: it is not closed for another


def allow_files(limits: Limits) -> None:
    """Raises this process's RLIMIT_NOFILE as far as the system permits, up to the need of the limits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _kept_files()
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def places_of(limits: Limits) -> int:
    """Returns the number of connections that find a descriptor, also while others are accepted."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits.connections
    kept = _kept_files()
    if soft < kept + _FEWEST_PLACES:
        raise OSError(f"RLIMIT_NOFILE is {soft}, and the front needs {kept + _FEWEST_PLACES}; raise it (ulimit -n)")
    return min(limits.connections, soft - kept)


def _kept_files() -> int:
    return _ON_THE_STEP + _OTHER_FILES + len(os.listdir("/proc/self/fd"))


class Door:
    """Makes the protocol of each connection. Belongs to one event loop."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.places = places_of(limits)
        self.turned_away = 0  # connections that got no place, or lost theirs to another one
        self.late = 0  # connections that sent too little for too long
        # By the server's protocol: a request may begin after its connection has lost its place.
        self._guests: dict[asyncio.BaseProtocol, Guest] = {}
        self._seated: set[Guest] = set()
        # By user and phase, the connection that has waited longest first.
        self._waiting: dict[int | None, tuple[dict[Guest, None], ...]] = {}

    @property
    def taken(self) -> int:
        return len(self._seated)

    def guest(self, server: web.Server) -> asyncio.Protocol:
        return Guest(self, server())

    def guest_of(self, request: web.Request) -> Guest:
        return self._guests[request.protocol]

    def admit(self, guest: Guest) -> bool:
        if len(self._seated) >= self.places and not self._make_room(guest.source.user):
            self.turned_away += 1
            return False
        self._guests[guest.inner] = guest
        self._seated.add(guest)
        self._waiting.setdefault(guest.source.user, tuple({} for _ in Phase))[guest.phase][guest] = None
        return True

    def moved(self, guest: Guest, phase: Phase) -> None:
        """Moves the guest from guest.phase to another phase."""
        if guest in self._seated:
            of_user = self._waiting[guest.source.user]
            of_user[guest.phase].pop(guest, None)
            of_user[phase][guest] = None

    def leave(self, guest: Guest) -> None:
        """Frees its place. May be called repeatedly."""
        if guest not in self._seated:
            return
        self._seated.remove(guest)
        of_user = self._waiting[guest.source.user]
        of_user[guest.phase].pop(guest, None)
        if not any(of_user):
            del self._waiting[guest.source.user]

    def forget(self, guest: Guest) -> None:
        """Forgets a closed connection."""
        self.leave(guest)
        self._guests.pop(guest.inner, None)

    def _make_room(self, user: int | None) -> bool:
        """Closes a connection of the user who has most, but none of a user who has fewer than the new one's user."""
        counts = {one: sum(map(len, phases)) for one, phases in self._waiting.items()}
        own = counts.get(user, 0)
        for one in sorted(counts, key=lambda each: counts[each], reverse=True):
            if counts[one] < own:
                return False
            for phase in (Phase.HEADER, Phase.BODY, Phase.IDLE):
                if waits := self._waiting[one][phase]:
                    self.turned_away += 1
                    next(iter(waits)).abort()
                    return True
        return False


class Guest(asyncio.Protocol):
    """Stands between a transport and the server's protocol, and hides only a loss of its place from the server."""

    def __init__(self, door: Door, inner: asyncio.BaseProtocol) -> None:
        self.inner: asyncio.Protocol = inner  # type: ignore[assignment]
        self.phase = Phase.HEADER
        self.source = Source()
        self._door, self._limits = door, door.limits
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._said_anything = False
        self._unsent = 0  # bytes at the timer's last look

    # -- calls of the server

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Marks that a request is being handled."""
        self._enter(Phase.BUSY)
        try:
            yield
        finally:
            self._enter(Phase.IDLE)

    @contextlib.contextmanager
    def awaiting_body(self) -> Iterator[None]:
        self._enter(Phase.BODY)
        try:
            yield
        finally:
            self._enter(Phase.BUSY)

    def abort(self) -> None:
        """Closes the connection; its place is free at once."""
        self._door.leave(self)
        if self._transport is not None:
            self._transport.abort()

    # -- calls of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.source = Source.of(transport)
        if not self._door.admit(self):
            transport.write(_plain(unavailable("all connections are taken; try again", "too_many_connections",
                                               self._limits.retry_after_s)))
            transport.close()
            return
        self._transport = transport
        self.inner.connection_made(transport)
        self._watch(self._limits.header_s)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._said_anything = True
        if self.phase == Phase.IDLE:
            self._enter(Phase.HEADER)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received() if self._transport is not None else None

    def pause_writing(self) -> None:
        if self._transport is not None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self.inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._door.forget(self)
        if self._transport is not None:
            self._transport = None
            self.inner.connection_lost(error)

    # -- time

    def _enter(self, phase: Phase) -> None:
        self._door.moved(self, phase)
        self.phase = phase
        # The server itself limits the time of a request that it handles.
        self._watch({Phase.HEADER: self._limits.header_s, Phase.IDLE: self._limits.idle_s}.get(phase))

    def _watch(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._unsent = 0
        if seconds is not None and self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._late, seconds)

    def _late(self, seconds: float) -> None:
        if self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size()
        if self.phase == Phase.IDLE and unsent and (not self._unsent or unsent < self._unsent):
            self._watch(seconds)  # the reader still takes the last answer
            self._unsent = unsent
            return
        self._door.late += 1
        if self.phase == Phase.HEADER and self._said_anything and not unsent:
            self._transport.write(_plain(ApiError(
                408, f"the header was not whole after {seconds:g} s; send it at once", code="timeout")))
            self._door.leave(self)
            self._transport.close()
        else:
            self.abort()


def _plain(error: ApiError) -> bytes:
    """Makes an error for a connection whose request was not read."""
    body = json.dumps(error.body()).encode()
    reason = {408: "Request Timeout", 503: "Service Unavailable"}[error.status]
    retry = f"Retry-After: {error.retry_after}\r\n" if error.retry_after is not None else ""
    return (f"HTTP/1.1 {error.status} {reason}\r\nContent-Type: application/json; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n{retry}Connection: close\r\n\r\n").encode() + body
