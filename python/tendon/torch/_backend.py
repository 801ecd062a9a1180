# SPDX-License-Identifier: Apache-2.0
"""The backend in Python, used when the extension is not built."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .. import _tendon
from . import _groups
from ._errors import as_of_torch, seconds_of
from ._sparse import sum_of_sparse
from ._work import PythonWork

Tensor = torch.Tensor

_REDUCE_OPS = {"SUM": "sum", "AVG": "avg", "PRODUCT": "product", "MIN": "min", "MAX": "max",
               "BAND": "bit_and", "BOR": "bit_or", "BXOR": "bit_xor"}


# The bytes that a link accepts in one message by default.
_MOST_OF_MESSAGE = 1 << 30

# torch keeps the C++ half of a backend, which finds its Python overrides only while this object lives.
_alive: set[Any] = set()


class PythonBackend(c10d.Backend):
    """Operations of one process group on a tendon.Group."""

    def __init__(self, member: _groups.Member, name: str) -> None:
        super().__init__(member.rank, member.size)
        self.member = member
        self.group = member.group
        self._timeout = member.timeout
        self._options = c10d.Backend.Options("tendon", member.timeout)
        self._options.group_name = name
        self._options.global_ranks_in_group = member.global_ranks
        self._issued = 0
        self._pending: collections.deque[PythonWork] = collections.deque()
        _alive.add(self)

    # Properties that torch reads

    def getBackendName(self) -> str:
        return "tendon"

    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_splitting(self) -> bool:
        return True

    @property
    def supports_shrinking(self) -> bool:
        return True

    @property
    def supports_coalescing(self) -> bool:
        return False

    @property
    def supports_reconfigure(self) -> bool:
        return False

    @property
    def supports_window(self) -> bool:
        return False

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    def _get_sequence_number_for_group(self) -> int:
        return self._issued

    def _set_sequence_number_for_group(self) -> None:
        """Numbers start at 0 on every rank: there is nothing to agree on."""

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._options._timeout = timeout

    # Collectives

    def allreduce(self, tensors: list[Tensor], opts: Any) -> PythonWork:
        if len(tensors) == 1 and tensors[0].is_sparse:
            return self.allreduce_sparse(tensors, opts)
        return self._start(lambda t: self.group.all_reduce(
            _one(tensors, "tensors"), _op(opts), timeout=t, async_op=True), opts, tensors)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> PythonWork:
        return self._start(lambda t: self.group.all_reduce(
            _dense(tensors), _op(opts), timeout=t, async_op=True), opts, tensors)

    def allreduce_sparse(self, tensors: list[Tensor], opts: Any) -> PythonWork:
        """Returns a finished Work: the size of a member's part is known only when all members have sent theirs."""
        def gather(mine: Tensor, outputs: list[Tensor]) -> None:
            self._start(lambda t: self.group.all_gather(mine, outputs=outputs, timeout=t,
                                                        async_op=True), opts, outputs).wait()

        if len(tensors) != 1:
            raise dist.DistBackendError(f"allreduce_sparse: {len(tensors)} tensors; legal is one")
        if opts.reduceOp.op != dist.ReduceOp.SUM:
            raise dist.DistBackendError(f"allreduce_sparse: {opts.reduceOp.op}; legal is SUM")
        with as_of_torch():
            sum_of_sparse(tensors[0], self.size(), gather)
        return PythonWork([], tensors)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> PythonWork:
        return self._start(lambda t: self.group.broadcast(
            _one(tensors, "tensors"), opts.rootRank, timeout=t, async_op=True), opts, tensors)

    def reduce(self, tensors: list[Tensor], opts: Any) -> PythonWork:
        return self._start(lambda t: self.group.reduce(
            _one(tensors, "tensors"), _op(opts), opts.rootRank, timeout=t, async_op=True), opts,
            tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor],
                  opts: Any) -> PythonWork:
        into = self._blocks(_one(outputs, "output lists"), "output tensors")
        return self._start(lambda t: self.group.all_gather(
            _one(inputs, "inputs"), outputs=into, timeout=t, async_op=True), opts, outputs)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor],
                            opts: Any) -> PythonWork:
        lists = self._blocks(outputs, "output lists")
        for one in lists:
            _like(one, inputs, "output tensors", "inputs")
        return self._start_all([
            lambda t, i=i: self.group.all_gather(inputs[i], outputs=_dense([one[i] for one in lists]),
                                                 timeout=t, async_op=True)
            for i in range(len(_dense(inputs)))], opts, outputs)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any) -> PythonWork:
        return self._start(lambda t: self.group.all_gather(
            *_dense([input]), outputs=self._times(output, input), timeout=t, async_op=True), opts,
            [output])

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor],
                                    opts: Any) -> PythonWork:
        _like(outputs, inputs, "outputs", "inputs")
        return self._start_all([
            lambda t, into=into, mine=mine: self.group.all_gather(
                *_dense([mine]), outputs=self._times(into, mine), timeout=t, async_op=True)
            for into, mine in zip(outputs, inputs)], opts, outputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> PythonWork:
        into = None
        if opts.rootRank == self.rank():
            into = self._blocks(_one(outputs, "output lists"), "output tensors")
        return self._start(lambda t: self.group.gather(
            _one(inputs, "inputs"), opts.rootRank, outputs=into, timeout=t, async_op=True), opts,
            outputs)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> PythonWork:
        mine: list[Tensor] = []
        if opts.rootRank == self.rank():
            mine = self._blocks(_one(inputs, "input lists"), "input tensors")
        return self._start(lambda t: self.group.scatter(
            mine, opts.rootRank, output=_one(outputs, "outputs"), timeout=t, async_op=True), opts,
            outputs)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]],
                       opts: Any) -> PythonWork:
        mine = self._blocks(_one(inputs, "input lists"), "input tensors")
        return self._start(lambda t: self.group.reduce_scatter(
            mine, _op(opts), output=_one(outputs, "outputs"), timeout=t, async_op=True), opts,
            outputs)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any) -> PythonWork:
        return self._start(lambda t: self.group.reduce_scatter(
            self._times(input, output), _op(opts), output=_one([output], "outputs"), timeout=t,
            async_op=True), opts, [output])

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor],
                                        opts: Any) -> PythonWork:
        _like(outputs, inputs, "outputs", "inputs")
        return self._start_all([
            lambda t, into=into, mine=mine: self.group.reduce_scatter(
                self._times(mine, into), _op(opts), output=_one([into], "outputs"), timeout=t,
                async_op=True)
            for into, mine in zip(outputs, inputs)], opts, outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> PythonWork:
        into = self._blocks(outputs, "output tensors")
        return self._start(lambda t: self.group.all_to_all(
            self._blocks(inputs, "input tensors"), outputs=into, timeout=t, async_op=True), opts,
            outputs)

    def all_to_all_single(self, output: Tensor, input: Tensor, output_sizes: list[int],
                          input_sizes: list[int], opts: Any) -> PythonWork:
        into = self._parts(output, output_sizes, "output")
        mine = self._parts(input, input_sizes, "input")
        return self._start(lambda t: self.group.all_to_all(mine, outputs=into, timeout=t,
                                                           async_op=True), opts, [output])

    def barrier(self, opts: Any) -> PythonWork:
        return self._start(lambda t: self.group.barrier(timeout=t, async_op=True), opts, [])

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        _groups.monitored_barrier(self.member, self._seconds(opts), wait_all_ranks)
        self._issued += 1

    # From member to member

    def send(self, tensors: list[Tensor], rank: int, tag: int) -> PythonWork:
        return self._message([
            lambda t, part=part: self.group.isend(part, rank, tag=tag, timeout=t)
            for part in _parts_of_message(_one(tensors, "tensors"))], tensors)

    def recv(self, tensors: list[Tensor], rank: int, tag: int) -> PythonWork:
        return self._message([
            lambda t, part=part: self.group.irecv(part, rank, tag=tag, timeout=t)
            for part in _parts_of_message(_one(tensors, "tensors"))], tensors, is_receive=True)

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> PythonWork:
        raise dist.DistBackendError(
            "recv without a source rank needs the extension of the backend 'tendon', because torch "
            "asks no Work in Python whose message it was; `python -m tendon.torch build` makes it")

    # Groups and their end

    def split(self, store: Any, ranks: list[int], opts: Any) -> Any:
        return _groups.part_of(self.member, ranks, opts.group_name, opts._timeout)

    def shrink(self, ranks_to_exclude: list[int], shrink_flags: int = 0,
               opts_override: Any = None) -> Any:
        return _groups.without(self.member, ranks_to_exclude, self._timeout)

    def abort(self) -> None:
        with as_of_torch():
            self.group.abort("abort() of its process group was called")

    def shutdown(self) -> None:
        """Finishes the issued operations, as gloo does; the callers that wait for a failed one get its error."""
        while self._pending:
            work = self._pending.popleft()
            if work.is_receive and not work.over():
                work.give_up()  # the message may never arrive; and it would keep the group alive
                continue
            try:
                work.wait()
            except dist.DistBackendError:
                pass
        _groups.close(self.member)
        _alive.discard(self)

    # How operations start

    def _seconds(self, opts: Any) -> float:
        return seconds_of(opts.timeout, self._timeout.total_seconds())

    def _start(self, start: Callable[[float], _tendon.Future], opts: Any,
               tensors: Any) -> PythonWork:
        return self._start_all([start], opts, tensors)

    def _start_all(self, starts: Sequence[Callable[[float], _tendon.Future]], opts: Any,
                   tensors: Any) -> PythonWork:
        seconds = self._seconds(opts)
        self._issued += 1
        with as_of_torch():
            return self._remember(PythonWork([start(seconds) for start in starts], tensors, seconds))

    def _message(self, starts: Sequence[Callable[[float], _tendon.Future]], tensors: Any,
                 is_receive: bool = False) -> PythonWork:
        seconds = self._timeout.total_seconds()
        with as_of_torch():
            return self._remember(PythonWork([start(seconds) for start in starts], tensors, seconds, is_receive))

    def _remember(self, work: PythonWork) -> PythonWork:
        while self._pending and self._pending[0].over():
            self._pending.popleft()
        self._pending.append(work)
        return work

    # Checks of tensors

    def _blocks(self, given: list[Any], name: str) -> list[Any]:
        if len(given) != self.size():
            raise dist.DistBackendError(f"{len(given)} {name} for {self.size()} ranks; legal is one "
                                        "for each rank")
        return given if given and isinstance(given[0], list) else _dense(given)

    def _times(self, whole: Tensor, part: Tensor) -> Tensor:
        """Returns `whole` after a check that it has one part for each rank."""
        if whole.numel() != part.numel() * self.size() or whole.dtype != part.dtype:
            raise dist.DistBackendError(
                f"a tensor of {whole.numel()} elements of {whole.dtype} beside one of {part.numel()} "
                f"of {part.dtype}; legal are one dtype and {self.size()} times as many elements, "
                f"which is {part.numel() * self.size()}")
        return _one([whole], "tensors")

    def _parts(self, whole: Tensor, sizes: list[int], name: str) -> list[Tensor]:
        """Returns views of `whole` along its first dimension, one for each rank."""
        if whole.dim() == 0:
            raise dist.DistBackendError(f"{name} has no dimension to be cut along")
        rows = whole.size(0)
        if not sizes:
            if rows % self.size() != 0:
                raise dist.DistBackendError(f"{name} has {rows} rows, which {self.size()} ranks "
                                            "cannot share equally; give split sizes")
            sizes = [rows // self.size()] * self.size()
        if len(sizes) != self.size() or sum(sizes) != rows or min(sizes) < 0:
            raise dist.DistBackendError(f"the split sizes of {name} are {sizes}; legal are "
                                        f"{self.size()} numbers whose sum is its {rows} rows")
        return list(_one([whole], name).split(sizes))


def _one(given: list[Any], name: str) -> Any:
    if len(given) != 1:
        raise dist.DistBackendError(f"{len(given)} {name}; legal is one")
    return given[0] if isinstance(given[0], list) else _dense(given)[0]


def _dense(tensors: list[Tensor]) -> list[Tensor]:
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise dist.DistBackendError(
                f"a tensor on {tensor.device}; the backend 'tendon' moves tensors on the CPU. For a "
                "GPU beside it: init_process_group('cpu:tendon,cuda:nccl')")
        if tensor.layout != torch.strided:
            raise dist.DistBackendError(f"a tensor of layout {tensor.layout}; legal are dense ones, "
                                        "and sparse COO ones in all_reduce")
    return [tensor.detach() for tensor in tensors]


def _parts_of_message(tensor: Tensor) -> Sequence[Tensor]:
    """Splits a larger tensor into parts that both ends compute from its size, as in native/backend.hpp."""
    if tensor.nbytes <= _MOST_OF_MESSAGE or not tensor.is_contiguous():
        return [tensor]
    count = tensor.nbytes // (_MOST_OF_MESSAGE // 2) + 1
    return tensor.view(-1).split(-(-tensor.numel() // count))


def _like(these: list[Any], those: list[Any], name: str, other: str) -> None:
    if len(these) != len(those):
        raise dist.DistBackendError(f"{len(these)} {name} beside {len(those)} {other}; legal are as "
                                    "many")


def _op(opts: Any) -> str | _tendon.ReduceOp:
    kind = opts.reduceOp.op
    if kind == dist.ReduceOp.PREMUL_SUM:
        return _tendon.ReduceOp.premul_sum(float(opts.reduceOp.factor))
    name = _REDUCE_OPS.get(kind.name)
    if name is None:
        raise dist.DistBackendError(f"{kind} is no operation; legal are {', '.join(_REDUCE_OPS)}")
    return name
