"""Conversations for a vLLM that has too few blocks for them, and the comparison of its answers with
those of another vLLM.

The answers cannot be equal to the last bit: what is computed together depends on what Tern has. In
float32 the log-probabilities lie close together, and tokens differ only where the best two are
nearly equal.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from instances import Answer, Ask

NEAR = 1e-4  # difference of log-probabilities
WAVE = 16  # conversations at a time; vLLM runs eight of them
TURNS = 3
TOKENS_MAX = 900  # of a prompt


@dataclass(frozen=True)
class Talk:
    """A conversation.

    salt, adapter: as in Ask
    news: the user's new tokens in each turn
    """

    salt: str
    adapter: int
    news: list[list[int]]


def words(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(3, 1000) for _ in range(n)]


def talks(rng: random.Random, adapters: int) -> Iterator[Talk]:
    """Yields conversations without end; many begin alike. Waves with and without adapters
    alternate, and in a wave with adapters each conversation has one of `adapters`: vLLM 0.32 for
    CPUs computes requests without an adapter wrongly beside requests with one (test_load.py shows
    it)."""
    systems = [words(rng, n) for n in (40, 120, 250, 400)]
    for i in itertools.count():
        adapter = rng.randrange(adapters) + 1 if adapters and i // WAVE % 2 == 0 else 0
        first = [*rng.choice(systems), *words(rng, rng.randrange(5, 90))]
        news = [first, *(words(rng, rng.randrange(5, 80)) for _ in range(rng.randrange(TURNS)))]
        yield Talk(rng.choice(["", "", "mine", "yours"]), adapter, news)


@dataclass
class Asked:
    """A request, and stock vLLM's answer."""

    ask: Ask
    answer: Answer


def waves(n: int, adapters: int) -> Iterator[list[Talk]]:
    """Yields waves of conversations, with n requests in all at least."""
    found, rng = 0, random.Random(n)
    source = talks(rng, adapters)
    while found < n:
        wave = [next(source) for _ in range(WAVE)]
        found += sum(len(talk.news) for talk in wave)
        yield wave


def turn(rng: random.Random, talk: Talk, before: Asked | None, at: int) -> Ask:
    """Returns the next request of a conversation. One in ten is aborted."""
    prompt = [*before.ask.prompt, *before.answer.said[0], *talk.news[at]] if before else talk.news[0]
    steps = rng.randrange(1, 40) if rng.random() < 0.1 else 0
    return Ask(prompt[:TOKENS_MAX], rng.randrange(8, 48), talk.salt, talk.adapter, steps)


@dataclass
class Compared:
    """Counts of a comparison.

    tokens: number of equal tokens
    near: requests whose answers part where the best two tokens are nearly equal
    largest: largest difference of log-probabilities
    """

    requests: int = 0
    tokens: int = 0
    near: int = 0
    largest: float = 0.0

    def add(self, mine: Answer, theirs: Answer) -> None:
        self.requests += 1
        for a, b, best, best_b in zip(mine.said[0], theirs.said[0], mine.said[1], theirs.said[1]):
            p, q = dict(best), dict(best_b)
            if a != b:
                assert gap(p) < NEAR and gap(q) < NEAR, f"{a} and {b}: {best} and {best_b}"
                self.near += 1
                return
            self.tokens += 1
            self.largest = max(self.largest, *(abs(p[token] - q[token]) for token in p.keys() & q.keys()))
        assert self.largest < NEAR

    @property
    def words(self) -> str:
        return (
            f"{self.requests} requests, {self.tokens} equal tokens, {self.near} answers part at a near tie, "
            f"log-probabilities within {self.largest:.1e}"
        )


def gap(best: dict[int, float]) -> float:
    """Returns the difference between the best two."""
    one, two = sorted(best.values(), reverse=True)[:2]
    return one - two
