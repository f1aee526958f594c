"""The pool that all vLLM instances of this host share."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from ..connection import Connection, Engine, Pool
from ..errors import Busy, Gone
from .pages import Layout
from .settings import Refused, Settings

START_S = 60.0  # limit of a start's step that is BUSY: an older pool is cleared, another instance starts
REJOIN_S = 5.0  # the same limit for one attempt to join a daemon that was started again
FOLLOW_MS = 1000  # deadline of each request of a scheduler that joins such a daemon
PAUSE_S = 0.05

_T = TypeVar("_T")


def patiently(what: str, call: Callable[[], _T], within_s: float) -> _T:
    """Repeats a call while it is BUSY, for `within_s` seconds; then raises Refused."""
    end = time.monotonic() + within_s
    while True:
        try:
            return call()
        except Busy as why:
            if time.monotonic() > end:
                raise Refused(f"{what} was BUSY for {within_s:.0f} s: {why}") from why
            time.sleep(max(PAUSE_S, why.retry_ms / 1000))


@contextmanager
def _one_at_a_time(socket: str, within_s: float) -> Iterator[None]:
    """Prevents instances that start together from opening a pool each. It locks the socket's
    folder, which needs only read access, and the kernel ends the lock with the process."""
    folder = os.open(os.path.dirname(os.path.abspath(socket)), os.O_RDONLY | os.O_DIRECTORY)
    end = time.monotonic() + within_s
    try:
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Refused(f"another vLLM has been opening its pool at {socket} for {within_s:.0f} s") from None
                time.sleep(PAUSE_S)
        yield
    finally:
        os.close(folder)


def pools_of(connection: Connection, layout: Layout, nbytes: int) -> list[int]:
    """Returns the handles of the tenant's pools of this layout and size."""
    first = layout.groups[0].name

    def suits(row: dict[str, Any]) -> bool:
        is_it = row["group"] == first and row["tier"] == "device" and row["ranks"] == layout.ranks
        return is_it and 0 <= nbytes - int(row["bytes"]) < layout.slab_bytes

    return [int(row["pool"], 16) for row in connection.stats()["pools"] if suits(row)]


def share_pool(engine: Engine, layout: Layout, settings: Settings, within_s: float) -> Pool:
    """Maps the pool that another instance has opened or left behind; else opens it."""
    groups, align = layout.groups, layout.align
    with _one_at_a_time(settings.socket, within_s):
        for handle in pools_of(engine.connection, layout, settings.pool_bytes):
            mapping = partial(engine.map_pool, handle, groups, align_tokens=align)
            try:
                return patiently("mapping the pool", mapping, within_s)
            except Gone:
                pass  # the pool was being closed
        shard = "heads" if layout.ranks > 1 else "none"
        opening = partial(engine.open_pool, groups, bytes=settings.pool_bytes, shard=shard, align_tokens=align)
        return patiently("opening the pool", opening, within_s)


@contextmanager
def _connected(socket: str, deadline_ms: int = 0) -> Iterator[Connection]:
    """A connection that is closed if the body fails."""
    connection = Connection(socket, deadline_ms=deadline_ms)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def join(settings: Settings, layout: Layout, role: str, rank: int, within_s: float = START_S) -> Pool:
    """Joins the daemon and shares the pool, which is BUSY until all ranks have joined."""
    with _connected(settings.socket) as connection:
        joining = partial(connection.join, settings.engine, role=role, rank=rank, world=layout.ranks)
        engine = patiently("joining the daemon", joining, within_s)
        return share_pool(engine, layout, settings, within_s)


def follow(settings: Settings, layout: Layout, handle: int) -> Pool:
    """Joins the daemon as the scheduler, after the workers have joined anew. Deadlines are short:
    vLLM's steps wait for it."""
    with _connected(settings.socket, FOLLOW_MS) as connection:
        engine = connection.join(settings.engine, role="scheduler", world=layout.ranks, deadline_ms=FOLLOW_MS)
        return engine.map_pool(handle, layout.groups, align_tokens=layout.align, deadline_ms=FOLLOW_MS)
