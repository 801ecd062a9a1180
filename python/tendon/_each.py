# SPDX-License-Identifier: Apache-2.0
"""The iterators that `pipe.each()` and `subscriber.each()` return."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, Protocol, TypeVar

from ._tendon import EndOfStream

T = TypeVar("T")


class _Source(Protocol):
    def recv(self, timeout: Any, **arguments: Any) -> Any: ...
    def arecv(self, timeout: Any, **arguments: Any) -> Any: ...


class Each(Iterator[T], AsyncIterator[T], Generic[T]):
    """Iterates over the results of recv(), or of arecv() in an `async for`, up to the end of the stream."""

    def __init__(self, source: _Source, timeout: float | None, arguments: dict[str, Any]) -> None:
        self._source = source
        self._timeout = timeout
        self._arguments = arguments

    def __iter__(self) -> Each[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._source.recv(self._timeout, **self._arguments)
        except EndOfStream:
            raise StopIteration from None

    def __aiter__(self) -> Each[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._source.arecv(self._timeout, **self._arguments)
        except EndOfStream:
            raise StopAsyncIteration from None
