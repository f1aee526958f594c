"""The scheduler's work for the workers in one step, the workers' report, and which steps have
passed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Run:
    """Pages of Tern and blocks of vLLM, in one group: page pages[i] belongs to block blocks[i]."""

    pages: tuple[int, ...]
    blocks: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether each block has a page. Number 0 means none, on either side."""
        return len(self.pages) == len(self.blocks) and all(self.pages) and all(self.blocks)


@dataclass(frozen=True)
class Move:
    """The copies of one request, one run for each group, for `tokens` tokens."""

    request: str
    tokens: int
    runs: tuple[Run, ...]


@dataclass
class Work:
    """The work of one scheduler step. Only steps with work have a number, from 1 on.

    step: 0: there is nothing to do
    loads: from Tern to vLLM, at any time
    saves: from vLLM to Tern, when the step has been computed
    rejoin: by rank whose worker is to join again once its loads have ended: the life that is over
    """

    pool: int
    step: int = 0
    loads: list[Move] = field(default_factory=list)
    saves: list[Move] = field(default_factory=list)
    rejoin: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Joined:
    """The worker of this rank has joined the daemon anew. `life` is the worker's new life, and
    `pool` the handle of the pool that it shares."""

    rank: int
    life: int
    pool: int


@dataclass
class Steps:
    """Steps under way at a worker. A step passes when it and all before it have nothing left to
    do."""

    _left: dict[int, int] = field(default_factory=dict)
    passed: int = 0

    def begin(self, step: int, jobs: int) -> None:
        self._left[step] = jobs
        self._advance()

    def end_one(self, step: int) -> None:
        self._left[step] -= 1
        self._advance()

    def _advance(self) -> None:
        for step in sorted(self._left):
            if self._left[step]:
                return
            del self._left[step]
            self.passed = step
