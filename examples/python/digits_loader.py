#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A data loader in a process of its own: shuffles, augments and sends batches of digits.

digits_loader.py ADDRESS [EPOCHS]    digits_train.py prints the ADDRESS

scikit-learn ships the images: 1797 handwritten digits of 8 x 8 pixels.
"""

import sys
from typing import Any, cast

import numpy as np
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

import tendon

BATCH = 128


def augmented(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Moves each image by up to one pixel: the loader does this work for the trainer."""
    down, right = random.integers(-1, 2, size=2)
    return np.roll(images, (down, right), axis=(1, 2))


def main(address: str, epochs: int = 20) -> None:
    digits = cast(Any, load_digits())
    images = (digits.images / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    random = np.random.default_rng(0)
    schema = {"image": ("f32", (BATCH, 8, 8)), "label": ("i64", (BATCH,))}
    with tendon.connect(address) as pipe:
        for epoch in range(epochs):
            order = random.permutation(len(images))
            for start in range(0, len(order) - BATCH + 1, BATCH):
                chosen = order[start : start + BATCH]
                batch = pipe.loan(schema)  # memory that the trainer reads: nothing is copied
                batch["image"][:] = augmented(images[chosen], random)
                batch["label"][:] = labels[chosen]
                batch["epoch"] = epoch
                pipe.send(batch)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
