"""A small transformer with seeded weights, in NumPy: a layer of full attention, a layer of
sliding-window attention and a layer of linear attention, each followed by a gated MLP.

Invariant: a token's arithmetic depends only on the tokens before it. Each token is computed by
itself, so neither the batch that it runs in nor the chunks of its prompt change a bit of its
logits. The arithmetic is float64. The data that a token leaves for later ones (keys, values, the
linear layer's state) is float32, as in pages: a single wrong byte of it is far above the rounding
of float64, and shows in the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Cached = NDArray[np.float32]

WIDTH = 32
HEADS = 2
HEAD_DIM = 8
VOCABULARY = 128
WINDOW = 24  # tokens that the sliding-window layer reads, including the present one
DECAY = np.array([0.9, 0.98])  # of the linear layer's state, one for each head

FULL, SLIDING = 0, 1  # the layers that keep keys and values; numbers in reads and writes

KV_SHAPE = (2, HEADS, HEAD_DIM)  # of one token in one layer: its key and its value
STATE_SHAPE = (HEADS, HEAD_DIM, HEAD_DIM)


@dataclass
class Cache:
    """The store of a sequence's keys and values. The model writes each position once and reads what
    was written."""

    write: Callable[[int, int, Cached], None]  # layer, position, key and value
    read: Callable[[int, int, int], Cached]  # layer, first, end: [end - first, *KV_SHAPE]


@dataclass
class Layer:
    into: Floats  # WIDTH -> query, key, value
    out: Floats
    gate: Floats
    up: Floats
    down: Floats


def norm(x: Floats) -> Floats:
    scaled: Floats = x / np.sqrt(np.mean(x * x) + 1e-6)
    return scaled


class Model:
    def __init__(self, seed: int) -> None:
        random = np.random.Generator(np.random.PCG64(seed))

        def weights(rows: int, columns: int, gain: float = 1.0) -> Floats:
            drawn: Floats = random.standard_normal((rows, columns)) * (gain / np.sqrt(columns))
            return drawn

        inner = HEADS * HEAD_DIM
        self.embedding = random.standard_normal((VOCABULARY, WIDTH))
        self.layers = [
            Layer(
                into=weights(3 * inner, WIDTH),
                out=weights(WIDTH, inner, 2.0),
                gate=weights(2 * WIDTH, WIDTH),
                up=weights(2 * WIDTH, WIDTH),
                down=weights(WIDTH, 2 * WIDTH, 2.0),
            )
            for _ in range(3)
        ]
        self.head = weights(VOCABULARY, WIDTH, 4.0)
        self.turns = 10000.0 ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))

    def rotate(self, x: Floats, position: int) -> Floats:
        """Rotates each pair of a head's numbers by an angle that grows with the position."""
        angle = position * self.turns
        cos, sin = np.cos(angle), np.sin(angle)
        a, b = x[:, 0::2], x[:, 1::2]
        turned = np.empty_like(x)
        turned[:, 0::2] = a * cos - b * sin
        turned[:, 1::2] = a * sin + b * cos
        return turned

    def attend(self, query: Floats, kv: Cached) -> Floats:
        seen = kv.astype(np.float64)
        scores = (seen[:, 0] * query).sum(-1) / np.sqrt(HEAD_DIM)
        shares = np.exp(scores - scores.max(0))
        shares /= shares.sum(0)
        mixed: Floats = (shares[:, :, None] * seen[:, 1]).sum(0)
        return mixed

    def token(self, token: int, position: int, cache: Cache, state: Cached) -> tuple[Floats, Cached]:
        """Computes one token. Its keys and values go to the cache; returns its logits and the new
        state. The given state is unchanged, so a token that is rejected later has changed only its
        own position."""
        x = self.embedding[token].copy()
        new_state = state
        for i, layer in enumerate(self.layers):
            q, k, v = (layer.into @ norm(x)).reshape(3, HEADS, HEAD_DIM)
            if i == 2:
                k = np.exp(k - k.max(-1, keepdims=True))
                k /= k.sum(-1, keepdims=True)
                exact = state.astype(np.float64) * DECAY[:, None, None] + k[:, :, None] * v[:, None, :]
                new_state = exact.astype(np.float32)
                mixed = (q[:, :, None] * exact).sum(1)  # the exact state, since rounding hides small differences
            else:
                kv = np.stack([self.rotate(k, position), v]).astype(np.float32)
                cache.write(i, position, kv)
                first = 0 if i == FULL else max(0, position + 1 - WINDOW)
                mixed = self.attend(self.rotate(q, position), cache.read(i, first, position + 1))
            x = x + layer.out @ mixed.reshape(-1)
            h = norm(x)
            gate = layer.gate @ h
            x = x + layer.down @ (gate / (1 + np.exp(-gate)) * (layer.up @ h))
        return self.head @ norm(x), new_state


def no_state() -> Cached:
    return np.zeros(STATE_SHAPE, np.float32)


class Alone:
    """A sequence that one process computes without Tern. All other ways of computing it must give
    equal results."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.kv = np.zeros((2, 0, *KV_SHAPE), np.float32)
        self.n = 0
        self.state = no_state()
        self.logits = np.zeros(VOCABULARY)
        self.cache = Cache(self.write, self.read)

    def write(self, layer: int, position: int, kv: Cached) -> None:
        if position >= self.kv.shape[1]:
            longer = np.zeros((2, 2 * position + 64, *KV_SHAPE), np.float32)
            longer[:, : self.kv.shape[1]] = self.kv
            self.kv = longer
        self.kv[layer, position] = kv

    def read(self, layer: int, first: int, end: int) -> Cached:
        return self.kv[layer, first:end]

    def append(self, token: int) -> Floats:
        self.logits, self.state = self.model.token(token, self.n, self.cache, self.state)
        self.n += 1
        return self.logits
