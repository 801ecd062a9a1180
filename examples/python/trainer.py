# SPDX-License-Identifier: Apache-2.0
# A program of README.md: listens, and learns from each batch that a loader sends. Start it first, then loader.py or
# ../loader.cpp in another terminal.
import tendon, torch

weights = torch.zeros(4)
with tendon.listen("127.0.0.1:7000") as listener, listener.accept() as pipe:
    for batch in pipe.each(as_=torch):
        x, y = batch["x"], batch["y"]
        weights -= 0.1 * x.T @ (x @ weights - y) / len(x)
    print(weights.round(decimals=3), "by", pipe.path)
