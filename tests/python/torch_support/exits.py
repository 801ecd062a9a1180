# SPDX-License-Identifier: Apache-2.0
"""A program whose ranks end without destroy_process_group(), in each of several ways. exits.py FOLDER

The ranks are forks of the program. They end with the interpreter, which removes modules while threads of torch and
Tendon may run. The program prints how each ended.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WAYS = ["trained", "pending", "group", "error"]


def start() -> tuple[str, int]:
    """Returns in a rank, with the way and its number; the program itself does not return."""
    for way in WAYS:
        ranks: dict[int, int] = {}
        for rank in range(2):
            child = os.fork()
            if child == 0:
                return way, rank
            ranks[child] = rank
        for _ in range(2):
            child, status = os.wait()
            print(way, ranks[child], os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


way, rank = start()
dist.init_process_group("tendon", store=dist.FileStore(f"{sys.argv[1]}/{way}", 2), rank=rank, world_size=2,
                        timeout=timedelta(seconds=60))
x = torch.ones(1 << 16)
dist.all_reduce(x)
assert x[0] == 2
if way == "trained":
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
elif way == "pending":
    # Nobody waits for these, and nobody sends the message that the last one wants.
    works = [dist.all_reduce(x, async_op=True) for _ in range(10)]
    future = works[-1].get_future().then(lambda done: done.value())
    receive = dist.irecv(torch.ones(1), 1 - rank)
elif way == "group":
    part = dist.new_group([0, 1])
    dist.all_reduce(x, group=part)
elif way == "error":
    # Waits until the other rank has its result: a rank that leaves ends operations under way.
    dist.barrier()
    if rank == 1:
        raise RuntimeError("wanted")
