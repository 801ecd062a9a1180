# SPDX-License-Identifier: Apache-2.0
# A program of README.md: a node that receives the samples of others on robot/..., such as publisher.py's.
import tendon

for sample in tendon.Node("dashboard").subscriber("robot/*"):
    print(sample.publisher, sample.key, sample.tensors["acceleration"], flush=True)
