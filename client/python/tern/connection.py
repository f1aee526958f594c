"""A connection to the daemon of this host, the engine that it belongs to, and its mapped pools.

tern.connect makes a Connection, Connection.join an Engine, and Engine.open_pool a Pool.
"""

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
    """A struct tern, shared by the Connection and its arrays of pages.

    The struct is destroyed when neither the Connection nor an array of pages refers to it any more.
    So an array that is used after close() still lies in mapped memory.
    """

    def __init__(self, pointer: ct.c_void_p) -> None:
        self.pointer = pointer

    def __del__(self) -> None:
        lib.tern_destroy(self.pointer)


class Dropping(Protocol):
    """An object that has a Handle of its own, and releases it when its connection is closed."""

    def _drop(self) -> None: ...


class Asynchronous(Protocol):
    """The part of tern.Async that a Connection and its sessions use."""

    def _drain(self) -> None: ...
    def _drain_soon(self) -> None: ...
    def _has(self, session: Session) -> bool: ...


@dataclass(frozen=True)
class Reset:
    """The result of a reset of a namespace."""

    nodes: int  # prefix nodes that are still pinned; each is freed when nobody pins it
    unreached: int  # peers that get the reset when they are connected again


@dataclass(frozen=True)
class Depths:
    """How deep a prefix is on each tier, in tokens."""

    resumable: int  # depth that a match would find, in tokens
    history: int  # depth of HISTORY alone
    host: int  # depth after a match and a fetch from the host tier
    # Depth after a match and a fetch from the disk; 0: not above `resumable`. If the list is too
    # long for one request, the disk may have more.
    disk: int = 0


@one_thread
class Connection:
    """One connection of one process to the daemon of this host.

    One thread at a time may use the connection; another thread may take over between two calls. A
    call while another thread is in a call raises Conflict. In a forked child each call except
    close() raises DaemonLost: start processes by spawn, or connect anew. The connection ends with
    close() or with the last array of its pages, whichever is later.

    Args:
        path: path of the tenant's Unix socket.
        deadline_ms: deadline in milliseconds; 0: libtern's default.
    """

    def __init__(self, path: str, *, deadline_ms: int = 0) -> None:
        pointer = ct.c_void_p()
        self._guard = Guard()
        self._handle: Handle | None = None
        self._holders: WeakSet[Dropping] = WeakSet()
        self._async: Asynchronous | None = None
        # Cookies of all submitted requests: a closed Async may have left some under way.
        self._cookies = itertools.count(1)
        err = lib.tern_connect(encoded("path", path), milliseconds(deadline_ms), ct.byref(pointer))
        if err:
            raise error_of(err, f"{path}: {lib.tern_error_text(None, None).decode()}")
        self._handle = Handle(pointer)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection: at once if no array of its pages exists, else with the last one.

        A pool and its engine refer to each other, so close() releases what they have instead of
        leaving that to the garbage collector.
        """
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
        """Receives the answers that arrived before the answer of a synchronous call."""
        if self._async:
            self._async._drain()

    def _text(self) -> str:
        return str(lib.tern_error_text(self._p, None).decode())

    def _numbered(self, error: TernError) -> TernError:
        """Returns `error` with the numbers of the last answer's text."""
        n = (ct.c_uint64 * 2)()
        lib.tern_error_numbers(self._p, None, n)
        error.numbers = (n[0], n[1])
        return error

    def _check(self, err: int) -> None:
        if err:
            raise self._numbered(error_of(err, self._text()))

    @property
    def incarnation(self) -> int:
        """The daemon's incarnation: a new number at each start."""
        return int(lib.tern_incarnation(self._p))

    def trace(self, trace_id: int) -> None:
        """Sets the trace id of all further requests of this connection. The daemons log this id."""
        lib.tern_trace(self._p, number("trace_id", trace_id, U64_MAX))

    def ping(self, *, deadline_ms: int = 0) -> None:
        """Makes one round trip to the daemon."""
        self._check(lib.tern_ping(self._p, milliseconds(deadline_ms)))

    def stats(self, *, deadline_ms: int = 0) -> dict[str, Any]:
        """Returns the tenant's pools, its error counters, and the number of retracts undone."""
        text = ct.c_char_p()
        self._check(lib.tern_stats(self._p, milliseconds(deadline_ms), ct.byref(text)))
        told: dict[str, Any] = json.loads(text.value or b"{}")
        return told

    def wait_published(self, step: int, *, deadline_ms: int = 0) -> None:
        """Waits until every rank has passed `step`, as the daemon sees it.

        Raises:
            Conflict: a later wait of this connection replaced this one.
            Gone: a process of this engine died, or this process has left the engine.
        """
        self._check(lib.tern_wait_published(self._p, step_number(step), milliseconds(deadline_ms)))

    def namespace_reset(self, ns: Namespace, *, deadline_ms: int = 0) -> Reset:
        """Resets a namespace: nothing that was committed under `ns` is found any more, here and on
        the connected peers. Sessions that run in it can finish.

        Raises:
            Busy: too many resets wait for peers that are not connected. Nothing was reset.
        """
        nodes, unreached = ct.c_uint32(), ct.c_uint32()
        self._check(
            lib.tern_namespace_reset(
                self._p, ct.byref(ns._c()), milliseconds(deadline_ms), ct.byref(nodes), ct.byref(unreached)
            )
        )
        return Reset(nodes.value, unreached.value)

    def ticket_renew(self, ticket: str, *, stands_ms: int = 0, deadline_ms: int = 0) -> int:
        """Renews a ticket at the daemon that issued it.

        Returns:
            The number of milliseconds that the ticket is valid from now on.
        """
        stands, wanted = ct.c_uint32(), number("stands_ms", stands_ms)
        self._check(
            lib.tern_ticket_renew(
                self._p, encoded("ticket", ticket), wanted, milliseconds(deadline_ms), ct.byref(stands)
            )
        )
        return stands.value

    def ticket_drop(self, ticket: str, *, deadline_ms: int = 0) -> None:
        """Drops a ticket at the daemon that issued it: it can no longer be fetched."""
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
        """Makes this process a part of the engine `name`.

        Args:
            name: the engine's name, at most 47 bytes.
            role: "scheduler", "worker" or "both".
            rank, world: the number of this rank, and the number of ranks.
            device: UUID of this rank's device, or the index of the tenant's region ("0"); None:
                region r is rank r's.
            deadline_ms: deadline in milliseconds; 0: libtern's default.
        """
        self._check(
            lib.tern_join(
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
    """The engine that this process has joined. The end of the `with` block closes the connection,
    and so this process leaves the engine.

    connection, name: the connection that joined it, and its name
    last_step: the number of the last `with engine.step()`; 0 before the first
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
        """Opens a pool in the tenant's memory and maps this rank's region of it.

        Args:
            groups: the kinds of pages, each with a name of its own.
            bytes, host_bytes: bytes of the pool and of its host tier in one region.
            supersede: when to free STATE pages that a deeper resume point has made unnecessary:
                "lazy", "eager" or "off" (enum tern_supersede).
            shard: how ranks divide a page: "none", "heads", "replicated", "layers" or "tokens".
            stages: stages of the pipeline.
            align_tokens: tokens of a chunk (L); 0: the least common multiple of the HISTORY groups'
                page_tokens.

        Raises:
            Quota: the tenant does not have that much memory left.
            Invalid: the layout is wrong; the text names the field.
            Busy: the daemon is clearing an older pool. Retry.
        """
        layout, kept = c_layout(groups, bytes, host_bytes, supersede, shard, stages, align_tokens)
        handle, align = ct.c_uint64(), ct.c_uint32()
        c, ms = self.connection, milliseconds(deadline_ms)
        c._check(lib.tern_pool_open(c._p, ct.byref(layout), ms, ct.byref(handle), ct.byref(align)))
        del kept
        return self.map_pool(handle.value, groups, align_tokens=align.value, deadline_ms=deadline_ms)

    def map_pool(
        self, handle: int, groups: Sequence[Group], *, align_tokens: int, deadline_ms: int = 0
    ) -> Pool:
        """Maps a pool that another process of this engine has opened.

        Args:
            handle, align_tokens: as the other process's Pool has them.
            groups: the same groups as in its open_pool.
        """
        check_names(groups)
        number("align_tokens", align_tokens)
        mapped, named = ct.c_void_p(), number("handle", handle, U64_MAX)
        c = self.connection
        c._check(lib.tern_pool_map(c._p, named, milliseconds(deadline_ms), ct.byref(mapped)))
        pool = Pool(self, handle, mapped, tuple(groups), align_tokens)
        self._pools.append(pool)
        return pool

    def batch(self) -> Batch:
        """Returns an empty batch, which may be used again in each iteration."""
        from .session import Batch

        return Batch(self)

    @contextmanager
    def step(self, *, stream: int | None = None) -> Iterator[int]:
        """One iteration: yields its number, and publishes it at the end of the block.

        Without `stream`, the engine computes in the block itself. With `stream`, a CUDA stream
        publishes the step (Pool.done_step_on_stream): all kernels of the step are in that stream at
        the end of the block. After an exception the step is not published; a later step covers it.
        """
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

    engine, connection: the engine and connection that mapped it
    handle: its number, as in tern.h
    groups: its kinds of pages, as passed to open_pool
    align_tokens: tokens of a chunk (L); prefixes are shared in whole chunks
    nbytes: bytes of this process's mapping
    device: UUID of the GPU that it lies on; None: memory of the host
    ordinal: CUDA's number of that GPU in this process; None: memory of the host
    base: address of the mapping; for a pool on a GPU an address of that GPU
    """

    def __init__(
        self, engine: Engine, handle: int, mapped: ct.c_void_p, groups: tuple[Group, ...], align_tokens: int
    ) -> None:
        self.engine, self.handle, self.groups, self.align_tokens = engine, handle, groups, align_tokens
        self.connection = engine.connection
        self._mapped = mapped
        info = lib.tern_pool_info(mapped).contents
        size = int(info.bytes)
        device: bytes | None = info.device
        self.device = device.decode() if device else None
        self.ordinal: int | None = int(info.ordinal) if device else None
        self.base = int(info.base)
        # Arrays refer to this buffer, and the buffer to the connection. On a GPU there is none.
        self._bytes: Any = None if self.device else (ct.c_uint8 * size).from_address(self.base)
        if self._bytes is not None:
            self._bytes.handle = self.connection._handle
        self.connection._holders.add(self)
        self.nbytes = size

    def _drop(self) -> None:
        self._bytes = None

    def group(self, name: str) -> Group:
        """Returns the group of that name, or raises Invalid."""
        for g in self.groups:
            if g.name == name:
                return g
        raise Invalid(f"no group {name!r}: there are {', '.join(g.name for g in self.groups)}")

    def pages(self, name: str) -> npt.NDArray[Any]:
        """Returns all pages of a group, without a copy.

        The groups share the pool's memory: touch only the pages in your tables.

        Returns:
            An array of shape (pages, *group.shape) and the group's dtype, indexed by page index.
            The array keeps the mapping alive.

        Raises:
            Unsupported: the pool lies on a GPU; use view().
        """
        g = self.group(name)
        if self.device:
            raise Unsupported(f"the pool lies on {self.device}: use Pool.view, which gives its pages on that GPU")
        if self._bytes is None:
            raise DaemonLost("this connection was closed, and its pages are no longer mapped: connect again")
        count, dtype = self.nbytes // g.page_bytes, dtype_of(g.name, g.dtype)
        flat: npt.NDArray[Any] = np.frombuffer(self._bytes, dtype=dtype, count=count * math.prod(g.shape))
        return flat.reshape((count, *g.shape))

    def view(self, name: str) -> Pages:
        """Returns the pages that pages() returns, for libraries that take DLPack or
        `__cuda_array_interface__`.

        DLPack works for pools in memory of the host and on GPUs, `__cuda_array_interface__` only
        for those on GPUs.
        """
        from .exchange import Pages

        g, handle = self.group(name), self.connection._handle
        if handle is None:
            raise DaemonLost("this connection was closed, and its pages are no longer mapped: connect again")
        return Pages(handle, g, self.base, self.nbytes // g.page_bytes, self.ordinal)

    def done_step(self, step: int) -> None:
        """Publishes the last step that this rank's device has finished. Sends no request."""
        c = self.connection
        if c._p:  # raises if the connection is closed: the mapping may be gone
            c._check(lib.tern_done_step(self._mapped, step_number(step)))

    def done_step_on_stream(self, step: int, stream: int) -> str:
        """Publishes the step when the CUDA stream has finished all work queued on it before this
        call, and no earlier. Does not wait for the device.

        Args:
            step: the step, as for done_step.
            stream: the stream's handle (`torch.cuda.Stream.cuda_stream`, a CUstream), of the
                context that is current in this thread.

        Returns:
            The writer of the step: "device", or "host" if the device cannot write it and a thread
            of CUDA's driver does.

        Raises:
            Unsupported: this host has no CUDA driver, or the driver shows no GPU.
            Busy: too many steps that a thread of the driver writes are in streams.
        """
        c, by = self.connection, ct.c_int()
        handle = ct.c_void_p(number("stream", stream, U64_MAX))
        if c._p:
            c._check(lib.tern_done_step_on_stream(self._mapped, step_number(step), handle, ct.byref(by)))
        return STEP_BY[by.value]

    def checksums_on_stream(self, group: str, pages: npt.ArrayLike, *, step: int, stream: int) -> None:
        """Queues the computation of the checksums of pages on this rank's GPU, in the CUDA stream,
        after all work that is queued on it, for the commit that names `step`.

        The daemon then does not read these pages for their checksums. Call it before the step's own
        done_step_on_stream, for each commit and in every rank. The daemon itself computes missing
        checksums and, after any error, those of all these pages.

        Args:
            group: name of the group.
            pages: uint32 rows of an index and a generation, as `session.page_refs(group)` has them.
            step: the step of the commit.
            stream: as for done_step_on_stream.

        Raises:
            Unsupported: permanent; do not call it again. Commits work without it.
        """
        c, g = self.connection, self.group(group)
        rows = np.ascontiguousarray(pages, np.uint32)
        if rows.ndim != 2 or rows.shape[1] != 2:
            raise Invalid("pages must be rows of an index and a generation: see Session.page_refs")
        handle = ct.c_void_p(number("stream", stream, U64_MAX))
        first = rows.ctypes.data_as(ct.POINTER(_lib.Page))
        of = _lib.Checksums(step_number(step), g.page_bytes, g.units, len(rows), first)
        if c._p:
            c._check(lib.tern_checksums_on_stream(self._mapped, ct.byref(of), handle))

    def session(
        self, ns: Namespace, *, blobs_kept: int = 0, merging: bool = False, deadline_ms: int = 0
    ) -> Session:
        """Opens a session in this pool.

        Args:
            ns: the namespace of its prefixes.
            blobs_kept: how many of its last turn records keep their blobs, 1 to 16; 0: 2.
            merging: all turn records keep their blobs, to merge several samples.

        Raises:
            Gone: the pool was closed.
            Quota: the tenant has its maximum of sessions.
            Busy: the daemon is draining, or all session slots are in use.
        """
        from .session import Session

        return Session(self, ns, blobs_kept=blobs_kept, merging=merging, deadline_ms=deadline_ms)

    def peek(
        self, ns: Namespace, tokens: TokenList, *, keys: Iterable[ExtraKey] = (), deadline_ms: int = 0
    ) -> Depths:
        """Returns how deep a prefix is in the tree, in tokens, without any effect."""
        c, listed, depths = self.connection, c_tokens(tokens, keys), _lib.Depths()
        c._check(
            lib.tern_peek(
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
        """Begins a lease of pages of this pool, for at most `sessions` sessions at a time.

        high, low: see Lease; low None: half of `high`.
        """
        from .lease import Lease

        return Lease(self, high=high, low=low, sessions=sessions)

    def close(self, *, deadline_ms: int = 0) -> None:
        """Closes the pool and drops its prefixes. Arrays stay valid while this connection lives.

        Raises:
            Conflict: sessions are open in it, or another engine has mapped it.
        """
        c = self.connection
        c._check(lib.tern_pool_close(c._p, self.handle, milliseconds(deadline_ms)))


__all__ = ["STEP_NONE", "Connection", "Depths", "Engine", "Pool", "Reset"]
