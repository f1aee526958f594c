"""The worker's side: copies between vLLM's blocks and Tern's pages, and the number of the last finished step.

Saves are made before the step ends, so vLLM may reuse the blocks at once. Loads are made by a thread, and told with a
later step. ctypes lets the interpreter go on while memory moves.
"""

from __future__ import annotations

import ctypes as ct
import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from ..connection import Pool
from .jobs import Move, Steps, Work
from .pages import Layer, PageShape

log = logging.getLogger(__name__)


@dataclass
class Copied:
    """Whole blocks that were copied since the start, and their bytes."""

    loaded: int = 0
    saved: int = 0
    bytes: int = 0


@dataclass
class Copier:
    """Moves blocks between a pool's pages and the tensors of all layers."""

    shape: PageShape
    layers: Sequence[Layer]
    blocks: int
    base: int  # address of page 0
    pages: int

    def check(self, move: Move) -> None:
        if len(move.pages) != len(move.blocks):
            raise IndexError(f"{len(move.pages)} pages for {len(move.blocks)} blocks")
        if not all(0 < page < self.pages for page in move.pages):
            raise IndexError(f"a page of {move.pages} is not in the pool, which has {self.pages}")
        if not all(0 <= block < self.blocks for block in move.blocks):
            raise IndexError(f"a block of {move.blocks} is not in vLLM's KV, which has {self.blocks}")

    def copy(self, move: Move, load: bool) -> None:
        self.check(move)
        n = self.shape.layer_bytes
        for i, layer in enumerate(self.layers):
            for page, block in zip(move.pages, move.blocks):
                there = self.base + page * self.shape.page_bytes + i * n
                here = layer.address + block * layer.stride
                ct.memmove(*((here, there) if load else (there, here)), n)


def copier_of(pool: Pool, shape: PageShape, layers: Sequence[Layer], blocks: int) -> Copier:
    pages = pool.pages(shape.group().name)
    return Copier(shape, layers, blocks, pages.ctypes.data, len(pages))


@dataclass
class Worker:
    pool: Pool
    copier: Copier
    copied: Copied = field(default_factory=Copied)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "tern-load"))
    _steps: Steps = field(default_factory=Steps)
    _told: int = 0  # the last step that was published
    _loads: list[tuple[int, Move, Future[None]]] = field(default_factory=list)
    _saved: list[int] = field(default_factory=list)

    def load(self, work: Work) -> None:
        """Begins the loads of a step, which may have none."""
        if work.step:
            assert work.pool == self.pool.handle
            self._steps.begin(work.step, len(work.loads) + 1)  # one: the saves
            for move in work.loads:
                self._loads.append((work.step, move, self._thread.submit(self.copier.copy, move, True)))

    def save(self, work: Work) -> None:
        """Makes the saves of a step that was computed."""
        if not work.step:
            return
        for move in work.saves:
            self.copier.copy(move, False)
            self._count(move, "saved")
        self._steps.end_one(work.step)
        self._saved.append(work.step)
        self._publish()

    def loaded(self) -> tuple[set[str], set[str]]:
        """Requests whose loads have ended since the last call, and those of them that failed."""
        ended: set[str] = set()
        failed: set[str] = set()
        for step, move, future in [one for one in self._loads if one[2].done()]:
            self._loads.remove((step, move, future))
            ended.add(move.request)
            if why := future.exception():
                log.error("tern: request %s is computed, for its load failed: %s", move.request, why)
                failed.add(move.request)
            else:
                self._count(move, "loaded")
            self._steps.end_one(step)
        self._publish()
        return ended, failed

    def saved(self) -> list[int]:
        """Steps whose saves were made since the last call."""
        told, self._saved = self._saved, []
        return told

    def close(self) -> None:
        """Waits for the loads; then the memory may go."""
        self._thread.shutdown(wait=True)
        self.pool.connection.close()

    def _publish(self) -> None:
        if self._steps.passed > self._told:
            self._told = self._steps.passed
            self.pool.done_step(self._told)

    def _count(self, move: Move, what: str) -> None:
        setattr(self.copied, what, getattr(self.copied, what) + len(move.blocks))
        self.copied.bytes += len(move.blocks) * self.copier.shape.page_bytes
