# SPDX-License-Identifier: Apache-2.0
"""The visual cortex of the brain: a retina, and a spiking network that reads digits.

Publishes on vision/objects at each tick which of its output neurons fired. The prefrontal cortex sets on
pfc/control how closely it looks (the gain of its retina).
"""

import sys

import tendon
from node_program import NodeProgram, boottime_ns
from spikes import LIST, encode
from spiking import Retina, Spiking, load_or_train
from world import World

FRESH_NS = 250_000_000


class Attention:
    """The gain that was requested last; an old request is ignored."""

    def __init__(self) -> None:
        self._asked = (0, 1.0)

    def hear(self, sample: tendon.Sample) -> None:
        gain = sample.tensors["gain"]
        if isinstance(gain, float) and 0 <= gain <= 1:
            self._asked = (sample.stamp, gain)

    def gain(self) -> float:
        stamp, gain = self._asked
        return gain if stamp + FRESH_NS > boottime_ns() else 1.0


def main() -> None:
    learned = load_or_train()
    program = NodeProgram("vision")
    world = World.from_environment(learned.labels)
    retina, network, attention = Retina(seed=boottime_ns()), Spiking(learned), Attention()
    network.step(retina.look(learned.images[:1]))  # the first product of matrices is slow
    objects = program.publisher("vision/objects")
    program.subscribe("pfc/control", attention.hear)
    did = {"spikes_in": 0, "spikes_out": 0, "messages": 0, "lists": 0, "bytes": 0, "ticks_with_low_gain": 0}
    while program.tick():
        gain = attention.gain()
        seen = retina.look(learned.images[[world.image_at(boottime_ns())]], gain)
        fired = network.step(seen, gain)[0]
        message = encode(fired)
        objects.publish(message)
        did["spikes_in"] += int(seen.sum())
        did["spikes_out"] += int(fired.sum())
        did["messages"] += 1
        did["lists"] += message[0] == LIST
        did["bytes"] += len(message)
        did["ticks_with_low_gain"] += gain < 1
        program.beat(did)
    program.leave(did)


if __name__ == "__main__":
    sys.exit(main())
