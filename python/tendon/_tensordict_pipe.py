# SPDX-License-Identifier: Apache-2.0
"""The pipe and the server for tensordict's verbs: td.send(pipe), td.arecv(pipe) and similar ones."""

from __future__ import annotations

import asyncio
import copyreg
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import EllipsisType
from typing import Any

import torch
from tensordict import (LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict,
                        TensorDictBase, is_tensor_collection, is_tensorclass)

from ._default import aconnect, listen
from ._tendon import EndOfStream, HandlerFailed, Listener, Pipe, PipeClosed

# td.send() and td.recv() recognize a pipe by its type, tensordict's own TensorDictPipe, which has no public name.
# Releases without that type accept no pipes there; td.asend() does not check the type.
try:
    from tensordict._ucxx import TensorDictPipe as _TheirPipe
except ImportError:
    _TheirPipe = object

_log = logging.getLogger("tendon")
_NO_TENSORS = (NonTensorData, NonTensorStack)


class TensorDictPipe(_TheirPipe):  # type: ignore[misc, valid-type, unused-ignore]
    """A tendon.Pipe for td.send(pipe), td.recv(pipe), td.asend(pipe) and td.arecv(pipe).

    It replaces tensordict's own pipe, which needs UCX: in programs that use that one only
    the import changes. Both ends may differ in consolidated, and the other end may be
    a program that uses a tendon.Pipe, in C++ too.

    consolidated: received tensors lie in one buffer that the receiver owns, and a message of
    the same form arrives in the same TensorDict; the next receive overwrites it. False: each
    message is a new TensorDict on the memory it arrived in, without a copy.

    listen, sends and receives wait for ever, unless they have a timeout [s]; the death of the peer
    ends them. connect and close wait as long as the default context says.
    """

    def __init__(self, pipe: Pipe, *, consolidated: bool = True) -> None:
        if not isinstance(pipe, Pipe):
            raise TypeError(f"pipe is {pipe!r}, a '{type(pipe).__qualname__}'; legal is a tendon.Pipe: "
                            "connect() and listen() of TensorDictPipe make both")
        self._pipe = pipe
        self._consolidated = consolidated
        self._received: Any = None
        self._was_locked = False
        self._closed = False

    @classmethod
    async def connect(cls, host: str, port: int, *, consolidated: bool = True,
                      profile: str = "local", timeout: float | None | EllipsisType = ...) -> TensorDictPipe:
        """Connects to a listening peer, and waits until it listens.

        profile: "plaintext" for another host, unprotected. TensorDictPipe(connect(..., security=...)) is encrypted.
        timeout: [s]; None: for ever; left out: that of the default context.
        """
        return cls(await aconnect(_address(host, port), timeout, profile=profile), consolidated=consolidated)

    @classmethod
    async def listen(cls, port: int, *, consolidated: bool = True, host: str = "127.0.0.1",
                     profile: str = "local", timeout: float | None = None) -> TensorDictPipe:
        """Waits for the first client; TensorDictServer serves more than one.

        host, profile: "0.0.0.0" and "plaintext" are for clients of other hosts, without encryption and for everybody
        who can reach the port. TensorDictPipe() of what a secure Listener accepts is encrypted.
        """
        with listen(_address(host, port), profile=profile) as listener:
            return cls(await listener.aaccept(timeout), consolidated=consolidated)

    @property
    def pipe(self) -> Pipe:
        """The pipe itself."""
        return self._pipe

    @property
    def closed(self) -> bool:
        """True once this end is closed."""
        return self._closed

    def send(self, td: Any, timeout: float | None = None) -> None:
        """td.send(pipe): returns when td may be changed."""
        self._pipe.send(_checked(td), timeout)

    async def asend(self, td: Any, timeout: float | None = None) -> None:
        """td.asend(pipe)."""
        await self._pipe.asend(_checked(td), timeout)

    def recv(self, td: Any = None, *, device: object = None, timeout: float | None = None) -> Any:
        """td.recv(pipe): returns the sent TensorDict, in td if that is consolidated and of the same form."""
        return self._taken(self._pipe.recv(timeout, as_=TensorDict, device=device), td)

    async def arecv(self, td: Any = None, *, device: object = None, timeout: float | None = None) -> Any:
        """td.arecv(pipe)."""
        return self._taken(await self._pipe.arecv(timeout, as_=TensorDict, device=device), td)

    def close(self, timeout: float | None | EllipsisType = ...) -> None:
        """Waits until the peer holds everything sent, and ends the pipe; may be repeated."""
        self._closed = True
        try:
            self._pipe.close(timeout)
        except PipeClosed:
            pass

    async def aclose(self, timeout: float | None | EllipsisType = ...) -> None:
        """close() in an event loop."""
        self._closed = True
        try:
            await self._pipe.aclose(timeout)
        except PipeClosed:
            pass

    def __aiter__(self) -> TensorDictPipe:
        return self

    async def __anext__(self) -> Any:
        """Iterates to the end of the stream; raises any other end."""
        try:
            return await self.arecv()
        except (EndOfStream, PipeClosed):
            raise StopAsyncIteration from None

    def __enter__(self) -> TensorDictPipe:
        return self

    def __exit__(self, *exception: object) -> None:
        self._closed = True
        self._pipe.__exit__(*exception)

    async def __aenter__(self) -> TensorDictPipe:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._closed = True
        await self._pipe.__aexit__(*exception)

    def __del__(self) -> None:
        """tensordict's own pipe closes here; a tendon.Pipe closes by itself."""

    def __repr__(self) -> str:
        return f"TensorDictPipe({self._pipe!r})"

    def _taken(self, came: Any, td: Any) -> Any:
        if not self._consolidated:
            return came
        was_locked, self._was_locked = self._was_locked, came.is_locked
        if was_locked == came.is_locked:
            for target in (td, self._received):
                if target is not None and _is_consolidated(target) and _copy_into(target, came):
                    self._received = target
                    return target
        self._received = _owned(came)
        return self._received


class TensorDictServer:
    """Serves several clients, each with a TensorDictPipe, in one event loop.

    It listens from serve() or `async for pipe in server` on, until close().
    """

    def __init__(self, port: int, *, consolidated: bool = True, host: str = "127.0.0.1",
                 profile: str = "local") -> None:
        self._address = _address(host, port)
        self._profile = profile
        self._consolidated = consolidated
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Future[None] | None = None
        self._closed = False

    async def serve(self, on_connect: Callable[[TensorDictPipe], Awaitable[object]]) -> None:
        """Runs on_connect(pipe) as a task for each client, until close(); running tasks then continue.

        A task that raises ends its pipe: the exception is logged, and the client gets HandlerFailed with its text.
        """
        async for pipe in self:
            task = asyncio.create_task(_serve(on_connect, pipe))
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)

    async def __aiter__(self) -> AsyncIterator[TensorDictPipe]:
        if self._closed:
            return
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        with listen(self._address, profile=self._profile) as listener:
            while (pipe := await self._next(listener)) is not None:
                yield TensorDictPipe(pipe, consolidated=self._consolidated)

    def close(self) -> None:
        """Stops accepting clients; their pipes stay open. Callable on any thread."""
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)

    async def aclose(self) -> None:
        """close()."""
        self.close()

    async def __aenter__(self) -> TensorDictServer:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()

    async def _next(self, listener: Listener) -> Pipe | None:
        if self._closed or self._stopped is None:
            return None
        accepting = asyncio.ensure_future(listener.aaccept(None))
        try:
            await asyncio.wait((accepting, self._stopped), return_when=asyncio.FIRST_COMPLETED)
            return accepting.result() if accepting.done() else None
        finally:
            accepting.cancel()  # does nothing if it is done

    def _stop(self) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)


# Keeps the handlers' tasks alive, as an event loop holds them weakly.
_tasks: set[asyncio.Task[None]] = set()


async def _serve(on_connect: Callable[[TensorDictPipe], Awaitable[object]], pipe: TensorDictPipe) -> None:
    try:
        await on_connect(pipe)
        await pipe.aclose()
    except Exception as failure:
        _log.exception("the handler of %r failed", pipe)
        pipe.pipe.cancel(HandlerFailed(f"{failure!r}"))
    except BaseException:
        pipe.pipe.cancel()
        raise


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _checked(td: Any) -> Any:
    if isinstance(td, TensorDictBase) or (is_tensor_collection(td) and not isinstance(td, _NO_TENSORS)):
        return td
    raise TypeError(f"td is {td!r}, a '{type(td).__qualname__}'; legal is a TensorDict or a tensorclass: "
                    "a tendon.Pipe takes every mapping")


# Targets of a receive


def _content(td: Any) -> Any:
    return td._tensordict if is_tensorclass(td) else td


def _is_consolidated(td: Any) -> bool:
    return bool(_content(td).is_consolidated())


# Keys of consolidate()'s description: an entry with such a name would replace them.
_WORDS = frozenset(("cls", "cls_metadata", "leaves", "non_tensors", "size", "_device", "_total_bytes"))


def _owned(came: Any) -> Any:
    """Returns the same in one buffer of its own; unchanged if tensordict cannot describe that."""
    if not _can_be_described(came):
        return came
    try:
        owned = came.consolidate(metadata=True)
    except KeyError:  # an element type that the description lacks, such as float8
        return came
    if not came.is_locked:
        owned = _unlocked(owned)
    return owned if _collect(owned, came, []) else came


def _unlocked(owned: Any) -> Any:
    # unlock_() would remove the mark of consolidation. The function that makes copies returns one on the same buffer,
    # in the lock state from before consolidate().
    reduce = copyreg.dispatch_table.get(type(owned))
    if reduce is None:
        return owned
    make, parts = reduce(owned)[:2]
    return make(*parts)


def _can_be_described(td: Any) -> bool:
    td = _content(td)
    if isinstance(td, LazyStackedTensorDict):
        return all(map(_can_be_described, td.tensordicts))
    return all(key not in _WORDS and not key.startswith("<NJT_")
               and (not is_tensor_collection(entry) or isinstance(entry, _NO_TENSORS) or _can_be_described(entry))
               for key, entry in td.items())


def _copy_into(target: Any, came: Any) -> bool:
    """Copies the tensors; False, without a change, unless both have the same form and the same values."""
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    if not _collect(target, came, pairs):
        return False
    with torch.no_grad():
        for mine, theirs in pairs:
            mine.copy_(theirs)
    return True


def _collect(target: Any, came: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    if type(target) is not type(came):
        return False
    target, came = _content(target), _content(came)
    if isinstance(target, LazyStackedTensorDict):
        mine, theirs = target.tensordicts, came.tensordicts
        return (target.stack_dim == came.stack_dim and target.names == came.names and len(mine) == len(theirs)
                and all(_collect(*both, pairs) for both in zip(mine, theirs, strict=True)))
    if (target.batch_size != came.batch_size or target.names != came.names or target.device != came.device
            or len(target.keys()) != len(came.keys())):
        return False
    for key, theirs in came.items():
        mine = target.get(key, None)
        if type(mine) is not type(theirs):
            return False
        if isinstance(theirs, torch.Tensor):
            if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
                return False
            pairs.append((mine, theirs))
        elif isinstance(theirs, _NO_TENSORS):
            if mine.batch_size != theirs.batch_size or mine.tolist() != theirs.tolist():
                return False
        elif is_tensor_collection(theirs):
            if not _collect(mine, theirs, pairs):
                return False
        elif mine != theirs:
            return False
    return True
