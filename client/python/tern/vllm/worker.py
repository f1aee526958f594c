"""The worker's side: copies between vLLM's blocks and Tern's pages, and the last finished step.

Saves are made before the step ends, so vLLM may reuse the blocks at once. A thread makes the loads,
and a later step reports them. The interpreter lock is released during copies.
"""

from __future__ import annotations

import ctypes as ct
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from .._lib import Blocks, lib
from ..connection import Pool
from .jobs import Joined, Move, Run, Steps, Work
from .pages import Layer, Layout, PageShape
from .rejoin import Rejoin
from .settings import LOGGER, Refused

log = logging.getLogger(LOGGER)


@dataclass
class Copied:
    """Counts of copies since the start.

    loaded, saved: tokens copied from Tern and to it; only rank 0 counts them
    copies, bytes: whole blocks, and their bytes
    """

    loaded: int = 0
    saved: int = 0
    copies: int = 0
    bytes: int = 0


@dataclass
class GroupCopier:
    """Copies blocks between a pool's pages of one group and the tensors of its layers."""

    shape: PageShape
    layers: Sequence[Layer]
    blocks: int
    base: int  # address of page 0
    pages: int

    def check(self, run: Run) -> None:
        if len(run.pages) != len(run.blocks):
            raise IndexError(f"{len(run.pages)} pages for {len(run.blocks)} blocks")
        if not all(0 < page < self.pages for page in run.pages):
            raise IndexError(f"a page of {run.pages} is not in the pool, which has {self.pages}")
        if not all(0 < block < self.blocks for block in run.blocks):  # 0 stands for a block that vLLM dropped
            raise IndexError(f"a block of {run.blocks} is not in vLLM's KV, which has {self.blocks}")

    def copy(self, run: Run, load: bool) -> None:
        n = len(run.pages)
        pages, blocks = (ct.c_uint32 * n)(*run.pages), (ct.c_uint32 * n)(*run.blocks)
        for i, layer in enumerate(self.layers):
            there = Blocks(self.base + i * self.shape.layer_bytes, self.shape.page_bytes, pages)
            here = Blocks(layer.address, layer.stride, blocks)
            to, of = (here, there) if load else (there, here)
            lib.tern_copy_blocks(to, of, n, self.shape.data_bytes)


@dataclass
class Copier:
    groups: Sequence[GroupCopier]

    def copy(self, move: Move, load: bool) -> None:
        for group, run in zip(self.groups, move.runs, strict=True):
            group.check(run)
        for group, run in zip(self.groups, move.runs):
            group.copy(run, load)


def copier_of(pool: Pool, layout: Layout, layers: Sequence[Sequence[Layer]], blocks: int) -> Copier:
    groups = []
    for group, shape, of_group in zip(pool.groups, layout.shapes, layers, strict=True):
        pages = pool.pages(group.name)
        groups.append(GroupCopier(shape, of_group, blocks, pages.ctypes.data, len(pages)))
    return Copier(groups)


@dataclass
class Worker:
    """Makes the loads and saves of one rank, and publishes the steps that it has passed.

    join: joins the daemon again
    rank: number of this worker in the engine; each has the KV of some heads
    life: how often it has joined again
    """

    pool: Pool
    copier_of: Callable[[Pool], Copier]
    join: Callable[[], Pool]
    rank: int = 0
    life: int = 0
    copier: Copier = field(init=False)
    copied: Copied = field(default_factory=Copied)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "tern-load"))
    _steps: Steps = field(default_factory=Steps)
    _told: int = 0  # the last step that was published
    _loads: list[tuple[int, Move, Future[None]]] = field(default_factory=list)
    _saved: list[int] = field(default_factory=list)
    _rejoin: Rejoin | None = None

    def __post_init__(self) -> None:
        self.copier = self.copier_of(self.pool)

    def load(self, work: Work) -> None:
        """Begins the loads of a step, if it has any."""
        if work.step:
            if work.pool != self.pool.handle:
                raise Refused("the daemon restarted while vLLM started: start vLLM again")
            self._steps.begin(work.step, len(work.loads) + 1)  # 1: the saves
            for move in work.loads:
                self._loads.append((work.step, move, self._thread.submit(self.copier.copy, move, True)))
        if work.rejoin.get(self.rank) == self.life and self._rejoin is None:
            self._thread.submit(self.pool.connection.close)  # after the loads; no more saves will come
            self._rejoin = Rejoin(self.join)

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
        """Returns the requests whose loads have ended since the last call, and those that
        failed."""
        ended: set[str] = set()
        failed: set[str] = set()
        for step, move, future in [one for one in self._loads if one[2].done()]:
            self._loads.remove((step, move, future))
            ended.add(move.request)
            if why := future.exception():
                log.error("tern: request %s is computed because its load failed: %s", move.request, why)
                failed.add(move.request)
            else:
                self._count(move, "loaded")
            self._steps.end_one(step)
        self._publish()
        return ended, failed

    def saved(self) -> list[int]:
        """Returns the steps whose saves were made since the last call."""
        told, self._saved = self._saved, []
        return told

    def joined(self) -> Joined | None:
        """Returns the daemon that was joined anew since the last call, or None."""
        pool = self._rejoin.pool() if self._rejoin else None
        if pool is None:
            return None
        self._rejoin, self.pool, self.copier = None, pool, self.copier_of(pool)
        self.life += 1
        return Joined(self.rank, self.life, pool.handle)

    def close(self) -> None:
        """Waits for the loads, then closes the connection: the memory may be unmapped
        afterwards."""
        self._thread.shutdown(wait=True)
        if self._rejoin:
            self._rejoin.close()
        self.pool.connection.close()

    def _publish(self) -> None:
        if self._rejoin is None and self._steps.passed > self._told:
            self._told = self._steps.passed
            self.pool.done_step(self._told)

    def _count(self, move: Move, what: str) -> None:
        if self.rank == 0:
            setattr(self.copied, what, getattr(self.copied, what) + move.tokens)
        for group, run in zip(self.copier.groups, move.runs):
            self.copied.copies += len(run.blocks)
            self.copied.bytes += len(run.blocks) * len(group.layers) * group.shape.data_bytes
