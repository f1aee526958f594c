"""A connection to the daemon of this host, the engine that it belongs to, and its mapped pools."""

from __future__ import annotations

import ctypes as ct
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from . import _lib
from ._lib import STEP_NONE, lib
from .errors import DaemonLost, Invalid, TernError, Unsupported, error_of
from .guard import Guard, one_thread
from .layout import (
    ROLES,
    U64_MAX,
    ExtraKey,
    Group,
    Namespace,
    TokenList,
    c_layout,
    c_tokens,
    check_names,
    choice,
    dtype_of,
    encoded,
    encoded_or_none,
    milliseconds,
    number,
    step_number,
)

if TYPE_CHECKING:
    from .exchange import Pages
    from .lease import Lease
    from .session import Batch, Session

STEP_BY = ("device", "host")  # enum tern_step_by


class Handle:
    """A struct tern. It ends when nobody has it any more: not the Connection, and no array of pages.
    So an array that is used after close() still lies in mapped memory."""

    def __init__(self, pointer: ct.c_void_p) -> None:
        self.pointer = pointer

    def __del__(self) -> None:
        lib.tern_destroy(self.pointer)


class Dropping(Protocol):
    """What holds a Handle of its own, and lets it go when its connection is closed."""

    def _drop(self) -> None: ...


class Asynchronous(Protocol):
    """What a Connection and its sessions know of tern.Async."""

    def _drain(self) -> None: ...
    def _drain_soon(self) -> None: ...
    def _has(self, session: Session) -> bool: ...


@dataclass(frozen=True)
class Reset:
    nodes: int  # prefix nodes that are still held, and go when nobody holds them
    unreached: int  # peers that are told when they are connected again


@dataclass(frozen=True)
class Depths:
    resumable: int  # what a match would find
    history: int  # what HISTORY alone reaches
    host: int  # what a match and a fetch from the host tier would find
    disk: int = 0  # the same from the disk, or less than that for a list of more than one request; 0: no more than `resumable`


@one_thread
class Connection:
    """One connection of one process; it belongs to one thread at a time, and may be handed on between two calls: else
    Conflict. In a forked child each call but close() is DaemonLost: start processes by spawn, or connect anew. close() ends it, or the last array of pages does, whichever is later."""

    def __init__(self, path: str, *, deadline_ms: int = 0) -> None:
        pointer = ct.c_void_p()
        self._guard = Guard()
        self._handle: Handle | None = None
        self._holders: WeakSet[Dropping] = WeakSet()
        self._async: Asynchronous | None = None
        self._cookies = itertools.count(1)  # of all that is submitted: an Async that was closed may have left some
        self._records: ct.c_void_p | None = None  # the tenant's record memory, once it was needed
        err = lib.tern_connect(encoded("path", path), milliseconds(deadline_ms), ct.byref(pointer))
        if err:
            raise error_of(err, f"{path}: {lib.tern_error_text(None).decode()}")
        self._handle = Handle(pointer)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it at once, where no array of its pages is left. A pool and its engine name each other, so
        what they hold is not left to the garbage collector."""
        handle, self._handle = self._handle, None
        for holder in list(self._holders):
            holder._drop()
        del handle

    @property
    def _p(self) -> ct.c_void_p:
        if self._handle is None:
            raise DaemonLost("this connection was closed: connect again")
        if self._async:
            self._async._drain_soon()  # a call is about to be made
        return self._handle.pointer

    def _catch_up(self) -> None:
        """Takes the answers that came before the one that a synchronous call has got."""
        if self._async:
            self._async._drain()

    def _record_memory(self, deadline_ms: int) -> ct.c_void_p:
        p = self._p  # else the mapping is gone
        if self._records is None:
            mapped = ct.c_void_p()
            self._check(lib.tern_records_map(p, milliseconds(deadline_ms), ct.byref(mapped)))
            self._records = mapped
        return self._records

    def _text(self) -> str:
        return str(lib.tern_error_text(self._p).decode())

    def _numbered(self, error: TernError) -> TernError:
        """An exception of the last answer, with the numbers of its text."""
        n = (ct.c_uint64 * 2)()
        lib.tern_error_numbers(self._p, n)
        error.numbers = (n[0], n[1])
        return error

    def _check(self, err: int) -> None:
        if err:
            raise self._numbered(error_of(err, self._text()))

    @property
    def incarnation(self) -> int:
        """The number of the daemon's life: another one after each start."""
        return int(lib.tern_incarnation(self._p))

    def trace(self, trace_id: int) -> None:
        """From now on the requests of this connection carry this id, which the daemons log."""
        lib.tern_trace(self._p, number("trace_id", trace_id, U64_MAX))

    def ping(self, *, deadline_ms: int = 0) -> None:
        self._check(lib.tern_ping(self._p, milliseconds(deadline_ms)))

    def stats(self, *, deadline_ms: int = 0) -> dict[str, Any]:
        text = ct.c_char_p()
        self._check(lib.tern_stats(self._p, milliseconds(deadline_ms), ct.byref(text)))
        told: dict[str, Any] = json.loads(text.value or b"{}")
        return told

    def wait_published(self, step: int, *, deadline_ms: int = 0) -> None:
        """Waits until every rank has passed `step`, as the daemon sees it."""
        self._check(lib.tern_wait_published(self._p, step_number(step), milliseconds(deadline_ms)))

    def namespace_reset(self, ns: Namespace, *, deadline_ms: int = 0) -> Reset:
        """Forgets what was committed under `ns`, here and on the peers that are connected."""
        nodes, unreached = ct.c_uint32(), ct.c_uint32()
        self._check(
            lib.tern_namespace_reset_peers(
                self._p, ct.byref(ns._c()), milliseconds(deadline_ms), ct.byref(nodes), ct.byref(unreached)
            )
        )
        return Reset(nodes.value, unreached.value)

    def ticket_renew(self, ticket: str, *, stands_ms: int = 0, deadline_ms: int = 0) -> int:
        """At the daemon that gave it: from now on the ticket stands for so many milliseconds, which it returns."""
        stands, wanted = ct.c_uint32(), number("stands_ms", stands_ms)
        self._check(
            lib.tern_ticket_renew(
                self._p, encoded("ticket", ticket), wanted, milliseconds(deadline_ms), ct.byref(stands)
            )
        )
        return stands.value

    def ticket_drop(self, ticket: str, *, deadline_ms: int = 0) -> None:
        """At the daemon that gave it: nobody will fetch it."""
        self._check(lib.tern_ticket_drop(self._p, encoded("ticket", ticket), milliseconds(deadline_ms)))

    def join(
        self,
        name: str,
        *,
        role: str = "both",
        rank: int = 0,
        world: int = 1,
        device: str | None = None,
        deadline_ms: int = 0,
    ) -> Engine:
        """Makes this process a part of the engine `name`: its scheduler, a worker, or both."""
        self._check(
            lib.tern_join_device(
                self._p,
                encoded("name", name),
                choice(ROLES, "role", role),
                number("rank", rank),
                number("world", world),
                encoded_or_none("device", device),
                milliseconds(deadline_ms),
            )
        )
        return Engine(self, name)


@one_thread
class Engine:
    """What this process has joined. Leaving the `with` block closes the connection, and so leaves
    the engine.

    connection, name: as it was joined
    last_step: the number of the last `with engine.step()`, 0 before the first
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, name
        self.last_step = 0
        self._pools: list[Pool] = []

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def open_pool(
        self,
        groups: Sequence[Group],
        *,
        bytes: int,
        host_bytes: int = 0,
        supersede: str = "lazy",
        shard: str = "none",
        stages: int = 1,
        align_tokens: int = 0,
        deadline_ms: int = 0,
    ) -> Pool:
        """Carves a pool from the tenant's memory and maps this rank's region of it."""
        layout, kept = c_layout(groups, bytes, host_bytes, supersede, shard, stages, align_tokens)
        handle, align = ct.c_uint64(), ct.c_uint32()
        c, ms = self.connection, milliseconds(deadline_ms)
        c._check(lib.tern_pool_open(c._p, ct.byref(layout), ms, ct.byref(handle), ct.byref(align)))
        del kept
        return self.map_pool(handle.value, groups, align_tokens=align.value, deadline_ms=deadline_ms)

    def map_pool(
        self, handle: int, groups: Sequence[Group], *, align_tokens: int, deadline_ms: int = 0
    ) -> Pool:
        """Maps a pool that another process of this engine has opened."""
        check_names(groups)
        number("align_tokens", align_tokens)
        mapped, named = ct.c_void_p(), number("handle", handle, U64_MAX)
        c = self.connection
        c._check(lib.tern_pool_map(c._p, named, milliseconds(deadline_ms), ct.byref(mapped)))
        pool = Pool(self, handle, mapped, tuple(groups), align_tokens)
        self._pools.append(pool)
        return pool

    def batch(self) -> Batch:
        """An empty batch, to be used in each iteration."""
        from .session import Batch

        return Batch(self)

    @contextmanager
    def step(self, *, stream: int | None = None) -> Iterator[int]:
        """One iteration: gives its number, and publishes it at the end for an engine that computes in
        the block itself, or whose kernels are all in `stream` then (see Pool.done_step_on_stream). After an
        exception it is not published; a later step covers it."""
        self.last_step += 1
        yield self.last_step
        for pool in self._pools:
            if stream is None:
                pool.done_step(self.last_step)
            else:
                pool.done_step_on_stream(self.last_step, stream)


@one_thread
class Pool:
    """A mapped pool: pages as arrays, and the sessions that run in it.

    engine, connection: whose it is
    handle: its number, as tern.h has it
    groups: its kinds of pages, as they were given to open_pool
    align_tokens: prefixes are shared in chunks of so many tokens (L)
    nbytes: of this process's mapping
    device: the UUID of the GPU that it lies on, or None: it is memory of the host
    ordinal: the number of that GPU as CUDA shows it to this process, or None
    base: its address; on a GPU one of that GPU
    """

    def __init__(
        self, engine: Engine, handle: int, mapped: ct.c_void_p, groups: tuple[Group, ...], align_tokens: int
    ) -> None:
        self.engine, self.handle, self.groups, self.align_tokens = engine, handle, groups, align_tokens
        self.connection = engine.connection
        self._mapped = mapped
        size = int(lib.tern_pool_bytes(mapped))
        device: bytes | None = lib.tern_pool_device(mapped)
        self.device = device.decode() if device else None
        self.ordinal: int | None = int(lib.tern_pool_ordinal(mapped)) if device else None
        self.base = int(lib.tern_pool_base(mapped))
        # The arrays hold this buffer, and the buffer holds the connection. Of a GPU there is none.
        self._bytes: Any = None if self.device else (ct.c_uint8 * size).from_address(self.base)
        if self._bytes is not None:
            self._bytes.handle = self.connection._handle
        self.connection._holders.add(self)
        self.nbytes = size

    def _drop(self) -> None:
        self._bytes = None

    def group(self, name: str) -> Group:
        for g in self.groups:
            if g.name == name:
                return g
        raise Invalid(f"no group {name!r}: there are {', '.join(g.name for g in self.groups)}")

    def pages(self, name: str) -> npt.NDArray[Any]:
        """All pages of a group, without a copy: an array of shape (pages, *group.shape), whose first
        index is a page's. Groups share the memory of the pool: touch only pages of your tables."""
        g = self.group(name)
        if self.device:
            raise Unsupported(f"the pool lies on {self.device}: Pool.view has its pages, for that GPU alone")
        if self._bytes is None:
            raise DaemonLost("this connection was closed, and its pages are mapped no more: connect again")
        count, dtype = self.nbytes // g.page_bytes, dtype_of(g.name, g.dtype)
        flat: npt.NDArray[Any] = np.frombuffer(self._bytes, dtype=dtype, count=count * math.prod(g.shape))
        return flat.reshape((count, *g.shape))

    def view(self, name: str) -> Pages:
        """The same for libraries that take DLPack, wherever the pool lies, or `__cuda_array_interface__`."""
        from .exchange import Pages

        g, handle = self.group(name), self.connection._handle
        if handle is None:
            raise DaemonLost("this connection was closed, and its pages are mapped no more: connect again")
        return Pages(handle, g, self.base, self.nbytes // g.page_bytes, self.ordinal)

    def done_step(self, step: int) -> None:
        """Publishes the last step that this rank's device has finished. No request."""
        c = self.connection
        if c._p:  # else the mapping may be gone
            c._check(lib.tern_done_step(self._mapped, step_number(step)))

    def done_step_on_stream(self, step: int, stream: int) -> str:
        """The same when the CUDA stream has done all that it was given before this call, and no earlier. Nobody
        waits for the device. stream: its handle (`torch.cuda.Stream.cuda_stream`, a CUstream), of the context
        that is current in this thread. Says who will write the step: "device", or "host", a thread of CUDA's
        driver, where the device cannot."""
        c, by = self.connection, ct.c_int()
        handle = ct.c_void_p(number("stream", stream, U64_MAX))
        if c._p:
            c._check(lib.tern_done_step_on_stream(self._mapped, step_number(step), handle, ct.byref(by)))
        return STEP_BY[by.value]

    def checksums_on_stream(self, group: str, pages: npt.ArrayLike, *, step: int, stream: int) -> None:
        """Lets this rank's GPU compute the checksums of pages in the CUDA stream, behind all that it was given
        before, for the commit that names `step`: the daemon then reads none of them. Call it before the step's
        own done_step_on_stream, for each commit and in every rank; what it is not called for the daemon computes.
        pages: rows of an index and a generation, as `session.page_refs(group)` has them. Unsupported: it stays so, and
        commits need nothing of it; after any error the daemon computes the checksums of all these pages."""
        c, g = self.connection, self.group(group)
        rows = np.ascontiguousarray(pages, np.uint32)
        if rows.ndim != 2 or rows.shape[1] != 2:
            raise Invalid("pages are rows of an index and a generation: see Session.page_refs")
        handle = ct.c_void_p(number("stream", stream, U64_MAX))
        first = rows.ctypes.data_as(ct.POINTER(_lib.Page))
        of = _lib.Checksums(step_number(step), g.page_bytes, g.units, len(rows), first)
        if c._p:
            c._check(lib.tern_checksums_on_stream(self._mapped, ct.byref(of), handle))

    def session(
        self, ns: Namespace, *, blobs_kept: int = 0, merging: bool = False, deadline_ms: int = 0
    ) -> Session:
        """Opens a session in this pool. blobs_kept: so many of its last turn records keep their blobs, 1
        to 16; 0 stands for 2. merging: all of them do, for several samples that are merged."""
        from .session import Session

        return Session(self, ns, blobs_kept=blobs_kept, merging=merging, deadline_ms=deadline_ms)

    def peek(
        self, ns: Namespace, tokens: TokenList, *, keys: Iterable[ExtraKey] = (), deadline_ms: int = 0
    ) -> Depths:
        """How deep a prefix is in the tree, in tokens, without any effect."""
        c, listed, depths = self.connection, c_tokens(tokens, keys), _lib.Depths()
        c._check(
            lib.tern_peek_depths(
                c._p, self.handle, ct.byref(ns._c()), ct.byref(listed.c), milliseconds(deadline_ms), ct.byref(depths)
            )
        )
        return Depths(depths.resumable, depths.history, depths.host, depths.disk)

    def lease(
        self,
        *,
        high: int | Mapping[str, int],
        low: int | Mapping[str, int] | None = None,
        sessions: int = 256,
    ) -> Lease:
        """Holds pages of this pool ahead of need, for so many sessions at a time: see Lease. low: half of `high`."""
        from .lease import Lease

        return Lease(self, high=high, low=low, sessions=sessions)

    def close(self, *, deadline_ms: int = 0) -> None:
        """Gives up the pool and its prefixes. Arrays stay valid while this connection lives."""
        c = self.connection
        c._check(lib.tern_pool_close(c._p, self.handle, milliseconds(deadline_ms)))


__all__ = ["STEP_NONE", "Connection", "Depths", "Engine", "Pool", "Reset"]
