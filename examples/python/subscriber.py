# SPDX-License-Identifier: Apache-2.0
# A program of README.md: a node that takes what others publish on robot/..., as publisher.py does.
import tendon

for sample in tendon.Node("dashboard").subscriber("robot/*"):
    print(sample.publisher, sample.key, sample.tensors["acceleration"], flush=True)
