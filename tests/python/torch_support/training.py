# SPDX-License-Identifier: Apache-2.0
"""Cases of the tests of tendon.torch that train: compiled, in stages of a pipeline, sharded. See cases.py."""

import hashlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .cases import model_of_all, same


def compiles(rank, size, compiler) -> list[str]:
    """Digests of the parameters after some steps of data-parallel training, whose buckets are compiled separately."""
    torch.manual_seed(7)
    # The smallest bucket of torch is 1 MiB: one for each layer.
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
    compiled = torch.compile(model, backend=compiler)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(100 + rank)
    for _ in range(3):
        optimizer.zero_grad()
        compiled(torch.randn(4, 512)).square().mean().backward()
        optimizer.step()
    return [hashlib.sha256(parameter.detach().numpy().tobytes()).hexdigest() for parameter in model.parameters()]


def compresses(rank, size) -> list[list[float]]:
    """The parameters after some steps whose gradients PowerSGD compresses."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = DistributedDataParallel(model_of_all(), bucket_cap_mb=0.005)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(100 + rank)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
    return [parameter.detach().flatten().tolist() for parameter in model.parameters()]


def pipelines(rank, size) -> None:
    """The gradients of each schedule equal those of the whole model in one process."""
    from torch.distributed import pipelining

    torch.manual_seed(7)
    inputs, targets = torch.randn(8, 4), torch.randn(8, 4)
    loss_of = torch.nn.functional.mse_loss
    for schedule, stages_of_rank in ((pipelining.ScheduleGPipe, 1), (pipelining.Schedule1F1B, 1),
                                     (pipelining.ScheduleInterleaved1F1B, 2)):
        count = stages_of_rank * size
        torch.manual_seed(8)
        layers = [torch.nn.Linear(4, 4) for _ in range(count)]
        stages = [pipelining.PipelineStage(layers[place], place, count, torch.device("cpu"))
                  for place in range(rank, count, size)]
        losses: list[torch.Tensor] = []
        run = schedule(stages if stages_of_rank > 1 else stages[0], n_microbatches=4, loss_fn=loss_of)
        run.step(*[inputs] if rank == 0 else [], **{"target": targets, "losses": losses} if rank == size - 1 else {})

        torch.manual_seed(8)
        whole = [torch.nn.Linear(4, 4) for _ in range(count)]
        loss = loss_of(torch.nn.Sequential(*whole)(inputs), targets)
        loss.backward()
        for place in range(rank, count, size):
            assert torch.allclose(layers[place].weight.grad, whole[place].weight.grad, atol=1e-6), schedule
        if rank == size - 1:
            assert torch.allclose(torch.stack(losses).mean(), loss, atol=1e-6)


def sharded(rank, size) -> list[list[float]]:
    """FSDP2, DTensor, functional collectives and ZeroRedundancyOptimizer; returns the parameters after some steps."""
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(12.0).reshape(4, 3)
    part = distribute_tensor(whole, mesh, [Shard(0)])
    assert part.to_local().shape == (4 // size, 3)
    same(part.redistribute(mesh, [Replicate()]).to_local(), whole)
    same(part.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    same(functional.all_reduce(torch.ones(2), "sum", mesh) + 0, torch.full((2,), float(size)))

    found = []
    for make in (lambda model: fully_shard(model, mesh=mesh), DistributedDataParallel):
        model = make(model_of_all())
        if isinstance(model, DistributedDataParallel):
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        else:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        torch.manual_seed(100 + rank)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(16, 32)).square().mean().backward()
            optimizer.step()
        found += [getattr(one.detach(), "full_tensor", one.detach)().flatten().tolist()
                  for one in model.parameters()]
    return found
