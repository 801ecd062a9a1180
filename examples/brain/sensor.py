# SPDX-License-Identifier: Apache-2.0
"""A sensor that joins the brain while it runs: an event camera on the same scene.

Publishes on sensor/new_data at each tick which pixels became brighter or darker: many when another digit is
shown, which tells the prefrontal cortex about it, else nearly none.
"""

import sys

from node_program import NodeProgram, boottime_ns
from spikes import LIST, encode
from spiking import EventCamera, load_or_train
from world import World


def main() -> None:
    learned = load_or_train()
    program = NodeProgram("sensor")
    world = World.from_environment(learned.labels)
    camera = EventCamera(seed=boottime_ns())
    new_data = program.publisher("sensor/new_data")
    did = {"events": 0, "messages": 0, "lists": 0, "bytes": 0}
    while program.tick():
        fired = camera.look(learned.images[world.image_at(boottime_ns())])
        message = encode(fired)
        new_data.publish(message)
        did["events"] += int(fired.sum())
        did["messages"] += 1
        did["lists"] += message[0] == LIST
        did["bytes"] += len(message)
        program.beat(did)
    program.leave(did)


if __name__ == "__main__":
    sys.exit(main())
