# SPDX-License-Identifier: Apache-2.0
# A program of README.md: processes that average their gradients; one of them dies, the others continue. A launcher
# starts it: tendon launch -n 3 -- python average.py
import os, numpy, tendon

with tendon.Group.join() as group:
    for step in range(3):
        gradient = numpy.array([group.rank, 20.0])
        try:
            group.all_reduce(gradient, "avg")
            print(f"{group.size} members, mean {gradient.tolist()}")
        except tendon.PeerLost:
            group.shrink()  # those that are left go on
        if group.rank == 2:
            os._exit(0)  # a member dies
