# SPDX-License-Identifier: Apache-2.0
"""Three processes: a camera, a detector on a GPU, a planner. The camera publishes frames in host memory and does not
know about GPUs. The detector receives them on its GPU, cuts out the rows where something moved, and publishes the cut
from the GPU. The planner receives it in host memory. Without a GPU the detector says so and works in host memory. In
three terminals:

    python camera_detector_planner.py detect                   prints its address: 127.0.0.1:40231
    python camera_detector_planner.py plan 127.0.0.1:40231
    python camera_detector_planner.py see 127.0.0.1:40231

Without an argument it starts all three. Each of them may be replaced by that of examples/camera_detector_planner.cpp.
"""

import subprocess
import sys

import numpy as np

import tendon

FRAMES, ROWS = 3, 16  # frames of the camera, rows of an object


def see(node: tendon.Node) -> None:
    with node.publisher("camera/frames", history=FRAMES) as frames:  # its end waits until all of it was shown
        frames.wait_for_subscribers(1, timeout=60)
        for number in range(1, FRAMES + 1):
            image = np.zeros((480, 640), np.uint8)
            row = 100 * number
            image[row:row + ROWS] = 50 * number
            frames.publish({"image": image, "number": number, "row": row})  # something moved in that row


def kind_of_frame() -> object:
    """Returns torch if it is installed and sees a GPU: only the detector imports it, which takes seconds."""
    try:
        import torch
    except ImportError:
        return dict
    return torch if torch.cuda.is_available() else dict


def detect(node: tendon.Node) -> None:
    frames = node.subscriber("camera/frames")
    device, kind = "cuda:0", kind_of_frame()
    with node.publisher("detector/objects", history=FRAMES) as objects:
        objects.wait_for_subscribers(1, timeout=60)
        for _ in range(FRAMES):
            try:
                frame = frames.recv(timeout=60, device=device, as_=kind).tensors
            except (tendon.NotSupported, tendon.UnsupportedDevice) as error:
                print(f"detector: works in host memory, because {error}", file=sys.stderr)
                device = "cpu"
                frame = frames.recv(timeout=60, device=device).tensors  # it has waited
            image, row = frame["image"], frame["row"]
            # Without torch, a tensor on a GPU is a tendon.Tensor, which has no arithmetic: it is published unchanged.
            cut = image if isinstance(image, tendon.Tensor) else image[row:row + ROWS]
            objects.publish({"cut": cut, "number": frame["number"], "row": row}, timeout=60)
    print(f"detector: its frames lay in {device}", file=sys.stderr)


def plan(node: tendon.Node) -> None:
    objects = node.subscriber("detector/objects")
    for _ in range(FRAMES):
        found = objects.recv(timeout=60, device="cpu").tensors
        brightness = found["cut"].max()
        print(f"frame {found['number']}: object of brightness {brightness} from row {found['row']} on", flush=True)


role = sys.argv[1] if len(sys.argv) > 1 else "all"
if role in ("see", "plan"):
    node = tendon.Node(role, domain="robot", peers=sys.argv[2:3])
    (see if role == "see" else plan)(node)
else:  # the detector listens, because both others know it
    node = tendon.Node("detector", domain="robot", peers=[], listen="127.0.0.1:0")
    others = []
    if role == "all":
        others = [subprocess.Popen([sys.executable, __file__, other, node.address]) for other in ("plan", "see")]
    else:
        print(f"detector: listens on {node.address}", file=sys.stderr, flush=True)
    detect(node)
    sys.exit(any(other.wait() for other in others))
