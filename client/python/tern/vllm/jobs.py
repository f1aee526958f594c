"""What the scheduler asks of the worker in one step, what the worker reports, and which steps have passed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Run:
    """Page pages[i] of Tern and block blocks[i] of vLLM, in one group."""

    pages: tuple[int, ...]
    blocks: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether each block has a page. 0 is none, on either side."""
        return len(self.pages) == len(self.blocks) and all(self.pages) and all(self.blocks)


@dataclass(frozen=True)
class Move:
    """The copies of one request, by group, of so many tokens."""

    request: str
    tokens: int
    runs: tuple[Run, ...]


@dataclass
class Work:
    """One step of the scheduler. Steps are numbered where they have work, from 1 on.

    step: 0: there is nothing to do
    loads: from Tern to vLLM, whenever it suits
    saves: from vLLM to Tern, when the step has been computed
    rejoin: ranks whose worker joins again, once its loads have ended, and the life of it that is over
    """

    pool: int
    step: int = 0
    loads: list[Move] = field(default_factory=list)
    saves: list[Move] = field(default_factory=list)
    rejoin: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Joined:
    """The worker of this rank has joined the daemon anew, which begins this life of it, and shares this pool."""

    rank: int
    life: int
    pool: int


@dataclass
class Steps:
    """Steps that are under way at a worker. One passes when it and all before it have nothing left to do."""

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
