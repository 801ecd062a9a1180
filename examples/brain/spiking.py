# SPDX-License-Identifier: Apache-2.0
"""A small spiking network that reads handwritten digits, and the digits that it has not learned from.

spiking.py    trains it, or finds an earlier result; prints how many of the held-out digits it reads

scikit-learn ships the digits: 1797 of 8 x 8 pixels. A network of rates with the same layers learns the weights
(the rate of a neuron stands for its output). They are scaled so that no neuron has to fire more often than
once a tick; then leaky integrate-and-fire neurons use them. The result is kept in the user's cache,
as a safetensors file.
"""

import hashlib
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tendon

PIXELS, HIDDEN, DIGITS = 64, 96, 10
COPIES = 8  # output neurons that stand for one digit
HELD_OUT = 540
LEAK = np.float32(np.exp(-10 / 200))  # of a membrane in one tick of 10 ms
TICKS_TO_READ = 20


@dataclass
class Learned:
    """The weights of the network, and the digits that it did not learn from."""

    hidden: np.ndarray  # [PIXELS, HIDDEN]
    hidden_bias: np.ndarray
    output: np.ndarray  # [HIDDEN, DIGITS]
    output_bias: np.ndarray
    images: np.ndarray  # [HELD_OUT, PIXELS], 0 to 1
    labels: np.ndarray

    def accuracy(self, ticks: int = TICKS_TO_READ) -> float:
        """Returns the share of held-out digits for which the right neurons fired most in this number of ticks."""
        network = Spiking(self, len(self.images))
        eye = Retina(len(self.images), seed=1)
        counts = np.zeros((len(self.images), DIGITS))
        for _ in range(ticks):
            fired = network.step(eye.look(self.images))
            counts += fired.reshape(-1, DIGITS, COPIES).sum(2)
        return float((counts.argmax(1) == self.labels).mean())


class Retina:
    """Turns the brightness of pixels into rates of spikes, with noise as in eyes."""

    def __init__(self, count: int = 1, seed: int = 0, noise: float = 0.1) -> None:
        self._random = np.random.default_rng(seed)
        self._noise = noise
        self._charge = self._random.random((count, PIXELS), np.float32)

    def look(self, images: np.ndarray, gain: float = 1.0) -> np.ndarray:
        light = images + self._noise * self._random.standard_normal(images.shape, np.float32)
        self._charge += np.float32(gain) * np.clip(light, 0, 1)
        fired = self._charge >= 1
        self._charge -= fired
        return fired


class EventCamera:
    """Reports each pixel that becomes brighter or darker by a step: two neurons for each, on and off."""

    STEP = 0.2

    def __init__(self, seed: int = 0, noise: float = 0.005) -> None:
        self._random = np.random.default_rng(seed)
        self._noise = noise
        self._known = np.zeros(PIXELS, np.float32)

    def look(self, image: np.ndarray) -> np.ndarray:
        change = image - self._known
        on, off = change >= self.STEP, change <= -self.STEP
        self._known += np.float32(self.STEP) * (on.astype(np.float32) - off)
        noise = self._random.random(2 * PIXELS) < self._noise
        return np.concatenate([on, off]) | noise


class Spiking:
    """Leaky integrate-and-fire neurons in two layers, for a number of images at once."""

    def __init__(self, learned: Learned, count: int = 1) -> None:
        self._learned = learned
        self._hidden = np.full((count, HIDDEN), 0.5, np.float32)
        # The copies start at different charges, so that together they tell more than one of them.
        start = np.tile((np.arange(COPIES, dtype=np.float32) + 0.5) / COPIES, DIGITS)
        self._output = np.tile(start, (count, 1))

    def step(self, spikes: np.ndarray, gain: float = 1.0) -> np.ndarray:
        """Runs one tick: returns which of the DIGITS * COPIES output neurons fire."""
        learned = self._learned
        current = spikes.astype(np.float32) @ learned.hidden + np.float32(gain) * learned.hidden_bias
        fired = self._fire(self._hidden, current)
        current = fired.astype(np.float32) @ learned.output + np.float32(gain) * learned.output_bias
        return self._fire(self._output, np.repeat(current, COPIES, axis=1))

    @staticmethod
    def _fire(charge: np.ndarray, current: np.ndarray) -> np.ndarray:
        charge *= LEAK
        charge += current
        fired = charge >= 1
        charge -= fired
        np.maximum(charge, -1, out=charge)
        return fired


def train() -> Learned:
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    digits = load_digits()
    images = (digits.images / 16).reshape(-1, PIXELS).astype(np.float32)
    random = np.random.default_rng(0)
    order = random.permutation(len(images))
    held_out, taught = order[:HELD_OUT], order[HELD_OUT:]
    seen = [images[taught]] + [images[taught] + 0.15 * random.standard_normal((len(taught), PIXELS), np.float32)
                               for _ in range(2)]
    network = MLPClassifier((HIDDEN,), max_iter=30, random_state=0, learning_rate_init=3e-3, alpha=1e-3,
                            batch_size=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training stops after a fixed number of rounds on purpose
        network.fit(np.clip(np.concatenate(seen), 0, 1), np.tile(digits.target[taught], len(seen)))
    (hidden, output), (hidden_bias, output_bias) = network.coefs_, network.intercepts_
    rates = np.maximum(images[taught] @ hidden + hidden_bias, 0)
    hidden_most = np.percentile(rates, 99.5)
    output_most = np.percentile(rates @ output + output_bias, 99.9)
    scaled = (hidden / hidden_most, hidden_bias / hidden_most, output * hidden_most / output_most,
              output_bias / output_most)
    return Learned(*(each.astype(np.float32) for each in scaled), images[held_out],
                   digits.target[held_out].astype(np.int64))


def cache_file() -> Path:
    """Returns the path of the cache, which depends on the bytes of this file."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return folder / "tendon" / "brain" / f"digits-{version}.safetensors"


def load_or_train(say=lambda text: None) -> Learned:
    file = cache_file()
    try:
        kept = tendon.load(file)
        return Learned(*(np.array(kept[name]) for name in Learned.__dataclass_fields__))
    except (tendon.FileNotFound, tendon.CorruptData, KeyError):
        say("training a spiking network on 1257 digits, once ...")
    learned = train()
    file.parent.mkdir(parents=True, exist_ok=True)
    tendon.save(file, vars(learned))
    return learned


if __name__ == "__main__":
    found = load_or_train(lambda text: print(text, file=sys.stderr))
    print(f"reads {found.accuracy():.1%} of {HELD_OUT} held-out digits in {TICKS_TO_READ} ticks")
