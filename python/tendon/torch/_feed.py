# SPDX-License-Identifier: Apache-2.0
"""Batches that other processes make for a dataset: both halves of a feed, by number.

A consumer asks a producer for the batches from a number on. The producer answers with batches, each
with its number, and an end, or says that it no longer has that batch.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from .. import _tendon
from .._fork import free_lock
from ..server import serve
from ._forms import pack, unpack
from ._ready import first_done

# By then the producer knows that its former consumer has left, so that it serves the next one [s].
_HAND_OVER_S = 5.0
# The producer is lost, or ended without a message.
_GONE = (_tendon.PeerLost, _tendon.EndOfStream, _tendon.Unreachable)


class FeedGap(LookupError):
    """A producer lacks the requested batch, or skipped one."""


class Feeder:
    """The producer's half of a feed: hands numbered batches to one FeedDataset at a time.

    address: where it listens; its FeedDataset gets the same one. 'unix:@name', '127.0.0.1:7000'.
    batches: a function that takes a number and returns the batches from that one on; a
        sequence; or another iterable, whose first batches are made and dropped if a consumer
        asks for later ones. An iterator cannot rewind: FeedGap for the consumer.
    profile, context: those of tendon.listen.

    A batch is a tensor, an array, or a (nested) dict, list or tuple of these and of plain values. A
    second consumer gets ServerBusy. Batches are made on a thread of this object.
    """

    def __init__(self, address: str, batches: Callable[[int], Iterable[Any]] | Iterable[Any], *,
                 profile: str = "local", context: _tendon.Context | None = None) -> None:
        if isinstance(batches, (Mapping, str, bytes)) or not (
                callable(batches) or isinstance(batches, Iterable) or _is_sequence(batches)):
            raise TypeError(f"batches is {batches!r}, a '{type(batches).__qualname__}'; legal are a function of "
                            "one number, a sequence of batches and any other iterable of them")
        self._batches = batches
        self._next = 0  # of an iterator, which cannot rewind
        self._one = free_lock()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._server = serve(address, self._feed, profile=profile, context=context)

    @property
    def address(self) -> str:
        """The address where it listens, with the chosen port."""
        return self._server.address

    def wait(self, timeout: float | None = None) -> None:
        """Returns when a consumer has taken the last batch; raises the exception of `batches`.

        timeout: seconds, None for ever; then tendon.Timeout, and the feed continues.
        """
        if not self._over.wait(timeout):
            raise _tendon.Timeout(f"TD-E0003 timeout: no consumer of {self.address} took the last batch in "
                                  f"{timeout} s")
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Accepts no further consumer. The present one is served to its end."""
        self._server.close()

    def __enter__(self) -> Feeder:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def _feed(self, pipe: _tendon.Pipe) -> None:
        asked = pipe.recv().get("next")
        if type(asked) is not int or asked < 0:
            raise _tendon.CorruptData(f"a consumer asked for batch {asked!r}; legal are numbers from 0")
        if not self._one.acquire(timeout=_HAND_OVER_S):
            pipe.cancel(_tendon.ServerBusy("this producer feeds another consumer; a producer has one at a time"))
            return
        try:
            self._feed_one(pipe, asked)
        except (*_GONE, _tendon.Cancelled):
            pass  # the consumer left; the next one says where it continues
        except BaseException as failure:
            self._failure = failure
            self._over.set()
            raise
        finally:
            self._one.release()

    def _feed_one(self, pipe: _tendon.Pipe, number: int) -> None:
        try:
            for number, batch in self._from(number):
                content, form = pack(batch)
                pipe.send({"number": number, "form": form, "batch": content}, None)
                number += 1
        except FeedGap as gap:
            pipe.send({"gap": str(gap)}, None)
            pipe.close()
            return
        pipe.send({"end": number}, None)
        if pipe.recv(None).get("taken") == number:
            self._over.set()

    def _from(self, first: int) -> Iterator[tuple[int, Any]]:
        batches: Any = self._batches
        if _is_sequence(batches):
            if first > len(batches):
                raise FeedGap(f"batch {first} is asked for, and there are {len(batches)}")
            return ((number, batches[number]) for number in range(first, len(batches)))
        if not isinstance(batches, Iterable):
            return enumerate(batches(first), first)
        if iter(batches) is not batches:
            return _behind(enumerate(batches), first)
        if first < self._next:
            raise FeedGap(f"batch {first} is asked for, and the iterator of this producer is at {self._next}: it "
                          "does not go back; give a function of the first number instead")
        if first == self._next:
            return self._counted(batches)
        return _behind(self._counted(batches), first)

    def _counted(self, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        for batch in batches:
            self._next += 1
            yield self._next - 1, batch


def _behind(numbered: Iterator[tuple[int, Any]], first: int) -> Iterator[tuple[int, Any]]:
    """Returns the batches from that number on, and drops earlier ones."""
    number = -1
    for number, batch in numbered:
        if number >= first:
            yield number, batch
    if number + 1 < first:
        raise FeedGap(f"batch {first} is asked for, and the last one is {number}")


def _is_sequence(batches: Any) -> bool:
    """True for a map-style dataset; torch's Dataset has a __getitem__ in iterable ones as well."""
    return (hasattr(batches, "__getitem__") and hasattr(batches, "__len__")
            and not isinstance(batches, IterableDataset))


def feed(address: str, batches: Callable[[int], Iterable[Any]] | Iterable[Any], *, timeout: float | None = None,
         profile: str = "local", context: _tendon.Context | None = None) -> None:
    """Feeds a FeedDataset until it has taken the last batch: Feeder in one call.

    timeout: seconds, None for ever.
    """
    with Feeder(address, batches, profile=profile, context=context) as feeder:
        feeder.wait(timeout)


class FeedDataset(IterableDataset[Any]):
    """A dataset of the batches that other processes make, each by a Feeder.

    producers: their addresses, or one.
    in_order: one batch of each producer in turn, without those that ended; False: in order of arrival.
    resume: a state_dict(); the next iteration continues after the last batch taken there.
    timeout: of one batch [s]; None: for ever.
    connect_timeout: for a producer to be there [s].
    reconnect: how long a lost producer may take to restart [s]; it is then
        asked for the batch after the last one that arrived. 0: its loss is PeerLost.

    In workers of a DataLoader each takes every num_workers-th producer; use batch_size=None, since
    the batches are complete already. An iteration begins with batch 0, unless it resumes.
    """

    def __init__(self, producers: str | Sequence[str], *, in_order: bool = True,
                 resume: Mapping[str, Any] | None = None, timeout: float | None = None,
                 connect_timeout: float = 30.0, reconnect: float = 0.0, profile: str = "local") -> None:
        super().__init__()
        self._producers = [producers] if isinstance(producers, str) else list(producers)
        if not self._producers or not all(isinstance(each, str) for each in self._producers) or (
                len(set(self._producers)) < len(self._producers)):
            raise ValueError(f"producers is {producers!r}; legal is one address, or several different ones")
        self._in_order = in_order
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._reconnect = reconnect
        self._profile = profile
        self._start: dict[str, Any] | None = None
        self._state = self._fresh()
        if resume is not None:
            self.load_state_dict(resume)

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of batches taken from each producer: plain values, for torch.save or JSON."""
        return {**self._state, "taken": dict(self._state["taken"]), "ended": list(self._state["ended"])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration continue after the last batch taken in that state."""
        taken, ended, turn = state.get("taken"), state.get("ended"), state.get("turn")
        if not isinstance(taken, Mapping) or set(taken) != set(self._producers) or not all(
                type(count) is int and count >= 0 for count in taken.values()):
            raise ValueError(f"the state is of the producers {taken!r}; this dataset has {self._producers}")
        if not isinstance(ended, Sequence) or not set(ended) <= set(self._producers) or turn not in self._producers:
            raise ValueError(f"the state has the ends {ended!r} and the turn {turn!r}; legal are producers of it")
        self._state = self._start = {"taken": dict(taken), "ended": list(ended), "turn": turn}

    def __iter__(self) -> Iterator[Any]:
        self._state, self._start = self._start or self._fresh(), None
        state = self._state
        info = get_worker_info()
        mine = self._producers if info is None else self._producers[info.id::info.num_workers]
        left = [each for each in mine if each not in state["ended"]]
        if not left:
            return
        # Made in the process that iterates, which may be a fork. Nothing else uses its descriptor.
        context = _tendon.Context("feed")
        feeds: dict[str, _Feed] = {}
        try:
            for address in left:
                feeds[address] = _Feed(self, context, address, state["taken"][address])
            yield from self._in_turn(feeds, state) if self._in_order else self._as_they_come(feeds, state)
        finally:
            for one in feeds.values():
                one.leave()
            context.close()

    def _fresh(self) -> dict[str, Any]:
        return {"taken": {each: 0 for each in self._producers}, "ended": [], "turn": self._producers[0]}

    def _in_turn(self, feeds: dict[str, _Feed], state: dict[str, Any]) -> Iterator[Any]:
        # Starts with the producer whose turn it is.
        first = self._producers.index(state["turn"])
        for address in itertools.cycle(self._producers[first:] + self._producers[:first]):
            if address in feeds:
                batch = feeds[address].take(self._timeout)
                if batch is _END:
                    self._end(feeds, address, state)
                    if not feeds:
                        return
                    continue
                state["taken"][address] += 1
                state["turn"] = self._producers[(self._producers.index(address) + 1) % len(self._producers)]
                yield batch[0]

    def _as_they_come(self, feeds: dict[str, _Feed], state: dict[str, Any]) -> Iterator[Any]:
        while feeds:
            for one in feeds.values():
                one.begin()
            addresses = list(feeds)
            place = first_done(feeds[addresses[0]].context, [one.begin() for one in feeds.values()], self._timeout)
            if place is None:
                raise _tendon.Timeout(f"TD-E0003 timeout: no batch of {', '.join(addresses)} came in {self._timeout} s")
            one = feeds.pop(addresses[place])
            feeds[one.address] = one  # to the end of the line, so that every producer has its turn
            batch = one.take(self._timeout)
            if batch is _END:
                self._end(feeds, one.address, state)
                continue
            state["taken"][one.address] += 1
            yield batch[0]

    @staticmethod
    def _end(feeds: dict[str, _Feed], address: str, state: dict[str, Any]) -> None:
        feeds.pop(address).leave()
        state["ended"].append(address)


_END = ()


class _Feed:
    """One producer, as its consumer sees it."""

    def __init__(self, dataset: FeedDataset, context: _tendon.Context, address: str, first: int) -> None:
        self.context = context
        self.address = address
        self._dataset = dataset
        self._next = first
        self._future: _tendon.Future[dict[str, Any]] | None = None
        self._pipe = self._connect(dataset._connect_timeout)

    def begin(self) -> _tendon.Future[dict[str, Any]]:
        """Starts the receive of the next batch, as a future."""
        if self._future is None:
            self._future = self._pipe.irecv(None, as_=torch)
        return self._future

    def take(self, timeout: float | None) -> tuple[Any, ...]:
        """Returns the next batch in a tuple, or _END."""
        while True:
            try:
                return self._understood(self._message(timeout))
            except _GONE as gone:
                self._future = None
                if not self._dataset._reconnect:
                    raise self._lost(gone) from gone
                self._pipe.cancel()
                try:
                    self._pipe = self._connect(self._dataset._reconnect)
                except (_tendon.Unreachable, _tendon.Timeout) as away:
                    raise self._lost(away) from gone

    def leave(self) -> None:
        if self._future is not None:
            self._future.cancel()
            self._future = None
        self._pipe.cancel()

    def _connect(self, timeout: float) -> _tendon.Pipe:
        pipe = self.context.connect(self.address, timeout, self._dataset._profile)
        pipe.send({"next": self._next}, timeout)
        return pipe

    def _message(self, timeout: float | None) -> dict[str, Any]:
        if self._future is None:
            return self._pipe.recv(timeout, as_=torch)
        future, self._future = self._future, None
        return future.result()

    def _understood(self, message: dict[str, Any]) -> tuple[Any, ...]:
        if "gap" in message:
            raise FeedGap(f"the producer at {self.address}: {message['gap']}")
        number = message.get("number", message.get("end"))
        if number != self._next:
            raise FeedGap(f"the producer at {self.address} sent batch {number!r} where {self._next} comes next")
        if "end" in message:
            self._pipe.send({"taken": number})
            self._pipe.close()
            return _END
        if "batch" not in message:
            raise _tendon.CorruptData(f"the producer at {self.address} sent batch {number} without a content")
        self._next += 1
        return (unpack(message["batch"], message.get("form")),)

    def _lost(self, why: BaseException) -> _tendon.PeerLost:
        return _tendon.PeerLost(f"TD-E0107 peer lost: the producer at {self.address} ended before its batch "
                                f"{self._next}; start it anew, and go on with FeedDataset(resume=state): {why}")
