# SPDX-License-Identifier: Apache-2.0
# A program of README.md: connects to a trainer and sends it batches. Start trainer.py or ../trainer.cpp first, in
# another terminal.
import tendon, torch

with tendon.connect("127.0.0.1:7000") as pipe:
    for step in range(500):
        x = torch.randn(32, 4)
        pipe.send({"x": x, "y": x @ torch.tensor([1.0, 2.0, 3.0, 4.0])})
