# SPDX-License-Identifier: Apache-2.0
"""torch's DataLoader, whose workers send their batches through pipes, in shared memory."""

from __future__ import annotations

import hmac
import multiprocessing
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.multiprocessing
import torch.utils.data
from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from .. import _tendon
from . import _parcels
from ._ready import first_done

# The time between two checks whether a worker is alive [s].
_LOOK_S = 1.0
# The time for a started worker to connect, including its imports and the copy of its dataset [s].
_START_S = 600.0
# The time for the first message of a connected worker [s].
_FIRST_S = 30.0


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch.utils.data.DataLoader, with its arguments, its order and its seeds.

    Batches of workers pass through Tendon's pipes instead of torch's queues: tensors and large arrays
    through reused shared memory, everything else as pickles between the program and
    its own children.

    pin_memory: refused if there is an accelerator; call pin_memory() on the batch.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.num_workers > 0 and self.pin_memory and torch.accelerator.is_available():
            raise _tendon.NotSupported(
                "TD-E0002 not supported: pin_memory=True with workers: their batches lie in shared memory, which is "
                "not pinned; give pin_memory=False and call pin_memory() on the tensors of a batch")

    def _get_iterator(self) -> Any:
        if self.num_workers == 0:
            return super()._get_iterator()
        self.check_worker_number_rationality()
        return _PipeIterator(self)


@dataclass
class _Asked:
    """Stands in the arguments of torch's worker for the queue of its indices."""


@dataclass
class _Made:
    """Stands in the arguments of torch's worker for the queue of its results."""


class _Lane:
    """The parent's end of one worker, which torch uses as the queue of that worker's indices."""

    def __init__(self) -> None:
        self.pipe: _tendon.Pipe | None = None
        self._future: _tendon.Future[_tendon.Message] | None = None
        self._arrivals = _parcels.Arrivals()

    def put(self, asked: Any) -> None:
        assert self.pipe is not None
        try:
            _parcels.send(self.pipe, asked)
        except (_tendon.PeerLost, _tendon.EndOfStream, _tendon.Cancelled, _tendon.PipeClosed):
            pass  # the next batch tells how the worker ended

    def begin(self) -> _tendon.Future[_tendon.Message]:
        """Starts the receive of the next batch, as a future."""
        assert self.pipe is not None
        if self._future is None:
            self._future = self.pipe.irecv_message(None)
        return self._future

    def get(self, timeout: float) -> Any:
        assert self.pipe is not None
        end = time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            if self._future is None:
                message = self.pipe.recv_message(left)
            else:
                message = self._future.result(left)
                self._future = None
            whole = self._arrivals.take(message)
            if whole is not None:
                return whole[0]

    def cancel_join_thread(self) -> None:
        """torch calls this; there is no thread."""

    def close(self) -> None:
        if self.pipe is not None:
            self._future = None
            self.pipe.cancel()


class _Processes:
    """The multiprocessing context with which torch makes workers; its queues are pipes."""

    def __init__(self, context: Any, workers: int, address: str, token: bytes) -> None:
        self._context = context
        self._address = address
        self._token = token
        self.lanes = [_Lane() for _ in range(workers)]
        self._left = iter(self.lanes)
        self._results = _Lane()  # torch makes it first and reads nothing from it
        self._made_results = False

    def Queue(self) -> _Lane:  # noqa: N802: torch's name
        if not self._made_results:
            self._made_results = True
            return self._results
        return next(self._left)

    def Event(self) -> Any:  # noqa: N802: torch's name
        return self._context.Event()

    def Process(self, *, target: Any, args: tuple[Any, ...]) -> Any:  # noqa: N802: torch's name
        number = next(self.lanes.index(each) for each in args if isinstance(each, _Lane) and each is not self._results)
        places = tuple(_Made() if each is self._results else _Asked() if isinstance(each, _Lane) else each
                       for each in args)
        return self._context.Process(target=_work, args=(self._address, self._token, number, target, places))


class _PipeIterator(_MultiProcessingDataLoaderIter):
    """torch's iterator over batches of workers. torch keeps the order, the seeds and the workers; this class receives
    batches.
    """

    def __init__(self, loader: DataLoader) -> None:
        self._given_context = loader.multiprocessing_context
        self._lanes: list[_Lane] = []
        self._resumed: list[_Lane] = []  # their workers must still confirm the new start
        self._tendon = _tendon.Context("DataLoader", timeout=None)
        token = secrets.token_bytes(32)
        self._workers_status = [False] * loader.num_workers  # until torch sets it
        try:
            self._listener = self._tendon.listen(f"unix:@tendon-loader-{secrets.token_hex(16)}")
            self._token = token
            processes = _Processes(self._given_context or torch.multiprocessing, loader.num_workers,
                                   self._listener.address, token)
            self._lanes = processes.lanes
            # torch takes the multiprocessing context from the loader.
            super().__init__(_Given(loader, processes))
        except BaseException:
            self._close()
            raise

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if first_iter:
            self._accept()
        else:
            self._resumed = list(self._lanes)
        super()._reset(loader, first_iter)

    def _accept(self) -> None:
        """Accepts a connection from every worker, which connects first of all."""
        end = time.monotonic() + _START_S
        left = len(self._lanes)
        while left:
            try:
                pipe = self._listener.accept(_LOOK_S)
            except _tendon.Timeout:
                self._look_for_dead(None)
                if time.monotonic() >= end:
                    raise
                continue
            first = pipe.recv_message(_FIRST_S)
            number = first.tag
            if not hmac.compare_digest(first.bytes, self._token) or number >= len(self._lanes) or (
                    self._lanes[number].pipe is not None):
                pipe.cancel(_tendon.ServerBusy("this place is for workers of a DataLoader"))
                continue
            self._lanes[number].pipe = pipe
            left -= 1
        self._listener.close()

    def _try_get_data(self, timeout: float = _LOOK_S) -> tuple[bool, Any]:
        lane = self._next_lane(timeout)
        if lane is None:
            self._look_for_dead(None)
            return False, None
        try:
            data = lane.get(timeout)
        except _tendon.Timeout:
            self._look_for_dead(lane)
            return False, None
        except (_tendon.PeerLost, _tendon.EndOfStream, _tendon.Cancelled) as gone:
            raise RuntimeError(self._how_it_ended(self._lanes.index(lane))) from gone
        if self._resumed and isinstance(data[0], torch.utils.data._utils.worker._ResumeIteration):
            self._resumed.pop(0)
        return True, data

    def _next_lane(self, timeout: float) -> _Lane | None:
        if self._resumed:
            return self._resumed[0]
        if self._in_order:
            # The next batch is from this worker; those of others wait in their pipes.
            return self._lanes[self._task_info[self._rcvd_idx][0]]
        lanes = [self._lanes[number] for number in sorted({each[0] for each in self._task_info.values()})]
        place = first_done(self._tendon, [each.begin() for each in lanes], timeout)
        return None if place is None else lanes[place]

    def _look_for_dead(self, lane: _Lane | None) -> None:
        for number, worker in enumerate(self._workers):
            if not worker.is_alive() and (self._lanes[number] is lane or self._lanes[number].pipe is None):
                raise RuntimeError(self._how_it_ended(number))

    def _how_it_ended(self, number: int) -> str:
        worker = self._workers[number]
        worker.join(_LOOK_S)
        code = worker.exitcode
        how = ("is alive, and closed its pipe" if code is None else
               f"exited unexpectedly with code {code}" if code >= 0 else
               f"was killed by {_signal_name(-code)}")
        return f"DataLoader worker {number} (pid {worker.pid}) {how}"

    def _shutdown_workers(self) -> None:
        try:
            if not self._shutdown:
                # From here on torch's handler of SIGCHLD must ignore workers that end.
                self._workers_done_event.set()
                for lane in self._lanes:
                    if lane.pipe is not None:
                        lane.pipe.cancel()
            super()._shutdown_workers()
        finally:
            self._close()

    def _close(self) -> None:
        for lane in self._lanes:
            lane.close()
        self._tendon.close(_LOOK_S)

    def __del__(self) -> None:
        if hasattr(self, "_workers_done_event"):
            self._shutdown_workers()


class _Given:
    """The loader as torch's iterator reads it, with another multiprocessing context."""

    def __init__(self, loader: DataLoader, processes: _Processes) -> None:
        self._loader = loader
        self.multiprocessing_context = processes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Worker:
    """The worker's end, which torch uses as both of its queues."""

    def __init__(self, pipe: _tendon.Pipe, number: int) -> None:
        self._pipe = pipe
        self._number = number
        self._loans = _parcels.Loans(pipe)
        self._arrivals = _parcels.Arrivals()

    def collate(self, batch: Any) -> Any:
        """Collates as default_collate, into memory that the parent reads: the worker does not see the batch before it
        is sent.
        """
        if default_collate_fn_map[torch.Tensor] is _stack:
            return collate(batch, collate_fn_map={**default_collate_fn_map, torch.Tensor: self._stack_lent})
        return default_collate(batch)  # the program collates tensors in its own way

    def lend(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """Returns None for a small tensor, or one larger than a message may be."""
        return self._loans.empty(shape, dtype)

    def _stack_lent(self, batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
        first = batch[0]
        if (first.device.type != "cpu" or first.layout != torch.strided or first.is_quantized
                or any(type(each) is not torch.Tensor or each.dtype != first.dtype or each.requires_grad
                       for each in batch)):
            return torch.stack(batch, 0)
        out = self._loans.empty((len(batch), *first.shape), first.dtype)
        return torch.stack(batch, 0) if out is None else torch.stack(batch, 0, out=out)

    def get(self, timeout: float | None = None) -> Any:
        """Waits until the parent says when to end, or dies."""
        try:
            while True:
                whole = self._arrivals.take(self._pipe.recv_message(None))
                if whole is not None:
                    return whole[0]
        except (_tendon.PeerLost, _tendon.EndOfStream, _tendon.Cancelled):
            raise SystemExit(0) from None

    def put(self, made: tuple[Any, Any]) -> None:
        try:
            try:
                if isinstance(made[1], ExceptionWrapper):
                    self._loans.drop()
                _parcels.send(self._pipe, made, self._loans)
            except (_tendon.PeerLost, _tendon.EndOfStream, _tendon.Cancelled):
                raise SystemExit(0) from None
            except Exception:  # an object without a pickle, a batch beyond the limit
                failure = ExceptionWrapper(where=f"in DataLoader worker process {self._number}")
                self._loans.drop()
                _parcels.send(self._pipe, (made[0], failure))
        except (_tendon.PeerLost, _tendon.EndOfStream, _tendon.Cancelled):
            raise SystemExit(0) from None

    def cancel_join_thread(self) -> None:
        """torch calls this; there is no thread."""

    def close(self) -> None:
        """torch calls this; the pipe ends with the process."""


_worker: _Worker | None = None  # the worker that this process is


def empty_in_batch(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """torch.empty() for a collate_fn, or for samples that are already batches, on the CPU.

    In a worker of tendon.torch.DataLoader the tensor lies where the program reads it, so it is not
    copied: torch.stack(samples, out=empty_in_batch((len(samples), *samples[0].shape))). It belongs
    to the batch being made: the worker must not keep it. Elsewhere it is torch.empty().
    """
    made = None if _worker is None else _worker.lend(tuple(shape), dtype)
    return torch.empty(tuple(shape), dtype=dtype, device="cpu") if made is None else made


def _work(address: str, token: bytes, number: int, target: Any, places: tuple[Any, ...]) -> None:
    """Runs in a worker, before torch's own loop."""
    context = _tendon.Context(f"DataLoader worker {number}", timeout=None)
    try:
        pipe = context.connect(address, _START_S)
        pipe.send(token, tag=number)
    except _tendon.Error:
        parent = multiprocessing.parent_process()
        if parent is None or not parent.is_alive():
            return  # the parent ended before
        raise
    global _worker
    end = _worker = _Worker(pipe, number)
    if default_collate_fn_map[torch.Tensor] is collate_tensor_fn:
        # torch's function allocates new memory for its queues for each batch.
        default_collate_fn_map[torch.Tensor] = _stack
    target(*(end if isinstance(each, (_Asked, _Made)) else end.collate if each is default_collate else each
             for each in places))


def _stack(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.stack(batch, 0)
