# SPDX-License-Identifier: Apache-2.0
"""Two nodes, one of which publishes while the other one subscribes. In two terminals:

    python topic.py see                      prints its address: node vision listens on 127.0.0.1:40231
    python topic.py act 127.0.0.1:40231      connects to it, and receives

Without an argument both are in one process. The two programs of examples/topic.cpp do the same, and
either may be at the other end.
"""

import sys

import numpy as np

import tendon


def see(node: tendon.Node, objects: tendon.Publisher) -> None:
    if node.address:
        print(f"node {node.name} listens on {node.address}", file=sys.stderr, flush=True)
    with objects:  # its end waits until the subscriber was shown all of it
        objects.wait_for_subscribers(1, timeout=60)
        for number in range(1, 4):
            objects.publish({"number": np.array(number)})


def act(seen: tendon.Subscriber) -> None:
    for _ in range(3):
        sample = seen.recv(timeout=60)
        for gap in sample.gaps:
            print(gap)
        print(f"motor got object {sample.tensors['number']} of {sample.publisher}")


role = sys.argv[1] if len(sys.argv) > 1 else "both"
if role == "act":
    motor = tendon.Node("motor", domain="brain", peers=sys.argv[2:] or ["127.0.0.1:7450"])
    act(motor.subscriber("vision/*"))
else:
    vision = tendon.Node("vision", domain="brain", peers=[], listen="127.0.0.1:0" if role == "see" else "")
    objects = vision.publisher("vision/objects", history=3)
    if role == "see":
        see(vision, objects)
    else:
        seen = vision.subscriber("vision/*")
        see(vision, objects)
        act(seen)
