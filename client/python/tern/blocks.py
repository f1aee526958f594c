"""Blocks by key, for engines that keep their KV in memory of their own.

The module has the calls of tern_blocks.h, with Python buffers as values.

An engine opens a Blocks for each namespace, group and size of values; tern.store opens them for
the connectors of SGLang, vLLM and LMCache.
"""

from __future__ import annotations

import ctypes as ct
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias, Union, cast

import numpy as np
import numpy.typing as npt

from . import _lib
from ._lib import PEER_ANY, lib
from .errors import Invalid, TernError, error_of
from .guard import Guard, one_thread
from .layout import U64_MAX, Namespace, encoded, encoded_or_none, milliseconds, number

Piece: TypeAlias = Union[bytes, bytearray, memoryview, npt.NDArray[Any]]  # or another buffer
Value: TypeAlias = Union[Piece, Sequence[Piece]]  # one buffer, or a list or tuple of pieces
Addresses: TypeAlias = npt.NDArray[np.integer[Any]]  # [value, piece]

PLACES = ("nowhere", "pool", "host", "disk", "elsewhere")  # enum tern_block_place


@dataclass(frozen=True)
class BlockCounts:
    """Counts of a set since it was opened. See struct tern_block_counts."""

    gets: int  # keys asked for by gets
    hits: int  # keys of gets that were found
    puts: int  # keys passed to puts
    there: int  # keys of puts whose block was there already
    loads: int  # blocks that were loaded from the host tier, the disk or a peer
    again: int  # blocks that were evicted while they were read, and looked up again
    damaged: int  # blocks whose bytes were not those of any put; they were removed
    requests: int  # round trips to the daemon


@dataclass(frozen=True)
class Spans:
    """Values at addresses of this process, such as pages of an engine's host pool.

    No buffer object is made for a piece, so a value may have hundreds of pieces. The caller ensures
    that all of this memory is mapped: an address that is not mapped ends the process.

    addresses[i, j]: address of piece j of value i
    sizes[j]: bytes of piece j, the same for all values
    """

    addresses: Addresses
    sizes: Sequence[int]

    def __len__(self) -> int:
        return len(self.addresses)

    def __getitem__(self, part: slice) -> Spans:
        return Spans(self.addresses[part], self.sizes)


_KEY = np.dtype({"names": ["bytes", "n"], "formats": ["u8", "u4"], "itemsize": ct.sizeof(_lib.BlockKey)})
_VALUE = np.dtype({"names": ["iov", "niov"], "formats": ["u8", "u4"], "itemsize": ct.sizeof(_lib.BlockValue)})


class _Keys:
    """A list of keys as libtern takes it, with the memory that it points to."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if not isinstance(key, bytes):
                raise Invalid(f"a key is bytes, not {type(key).__name__}")
        self.n = len(keys)
        self._bytes = np.frombuffer(b"".join(keys) or b"\0", np.uint8)
        self._keys = np.zeros(self.n, _KEY)
        self._keys["n"] = lengths = np.fromiter(map(len, keys), np.uint64, self.n)
        self._keys["bytes"] = np.uint64(self._bytes.ctypes.data) + np.cumsum(lengths, dtype=np.uint64) - lengths
        self.c = self._keys.ctypes.data_as(ct.POINTER(_lib.BlockKey))
        self.marks = (ct.c_uint8 * self.n)()

    def told(self) -> list[bool]:
        return [mark == 1 for mark in self.marks]


def _array(piece: Piece, written: bool) -> npt.NDArray[np.uint8]:
    view = memoryview(cast(bytes, piece))
    if not view.c_contiguous:
        raise Invalid("a piece of a value is not contiguous: pass its contiguous parts, in order")
    if written and view.readonly:
        raise Invalid("a get writes into its values, and a piece of a value is read-only")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


class _Values:
    """A list of values as libtern takes it, with the memory that it points to."""

    def __init__(self, values: Sequence[Value] | Spans, n: int, written: bool) -> None:
        if len(values) != n:
            raise Invalid(f"there are {n} keys and {len(values)} values")
        self._values = np.zeros(n, _VALUE)
        if isinstance(values, Spans):
            self._of_spans(values)
        else:
            self._of_buffers(values, written)
        self.c = self._values.ctypes.data_as(ct.POINTER(_lib.BlockValue))

    def _of_spans(self, spans: Spans) -> None:
        addresses = np.asarray(spans.addresses, np.uint64)
        if addresses.ndim != 2 or addresses.shape[1] != len(spans.sizes):
            raise Invalid(f"addresses has the shape {addresses.shape}: it needs one column for each of {len(spans.sizes)} pieces")
        iov = np.empty((*addresses.shape, 2), np.uint64)  # struct iovec
        iov[:, :, 0], iov[:, :, 1] = addresses, spans.sizes
        self._pieces: object = iov
        self._values["iov"] = np.uint64(iov.ctypes.data) + np.arange(len(iov), dtype=np.uint64) * np.uint64(iov[:1].nbytes)
        self._values["niov"] = addresses.shape[1]

    def _of_buffers(self, values: Sequence[Value], written: bool) -> None:
        lists: list[Sequence[Piece]] = [v if isinstance(v, (list, tuple)) else [cast(Piece, v)] for v in values]
        arrays = [[_array(piece, written) for piece in pieces] for pieces in lists]
        iovs = [(_lib.IoVec * len(pieces))(*(_lib.IoVec(a.ctypes.data, a.nbytes) for a in pieces)) for pieces in arrays]
        self._pieces = (arrays, iovs)
        self._values["iov"] = [ct.addressof(iov) for iov in iovs]
        self._values["niov"] = [len(iov) for iov in iovs]


class BlockPin:
    """Blocks pinned in the pool until close(), or until their set is closed.

    pinned: for each key, whether its block is pinned
    """

    def __init__(self, blocks: Blocks, pointer: ct.c_void_p, pinned: list[bool]) -> None:
        self.connection, self.pinned = blocks, pinned
        self._pointer = pointer

    def __enter__(self) -> BlockPin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *, deadline_ms: int = 0) -> None:
        """Ends the pin. After an error some blocks may still be pinned: retry."""
        if self.connection.is_open:
            self.connection._unpin(self._pointer, milliseconds(deadline_ms))


@one_thread
class Blocks:
    """A set of blocks, as docs/blocks.md defines it. One thread at a time may use the set.

    Calls release the interpreter lock while they wait and copy. A value is a buffer of value_bytes
    bytes, or a list of buffers of that total size; instead of a list of values a call takes Spans.
    After an error of a get or put, `done` of the exception has one bool for each key.

    Args:
        path: path of the tenant's Unix socket.
        namespace, group, value_bytes: what identifies the set; value_bytes is the size of each
            value.
        pool_bytes, host_bytes: bytes of the pool and of its host tier. All sets of the tenant with
            this group and value size share one pool; the set that is opened first decides its size.
        threads: threads that copy, including the calling thread.
        populate: map the whole pool at once instead of at the first touch of each page.
        device: the tenant's region to use; None: the first.
        hosts: the peers to ask for blocks that this host does not have. None: none; "any": all
            peers; or a peer's name.
        deadline_ms: deadline of the opening in milliseconds; 0: libtern's default.

    Raises:
        Invalid, Quota, Unsupported: as for tern_blocks_open.
    """

    def __init__(
        self,
        path: str,
        *,
        namespace: Namespace,
        group: str,
        value_bytes: int,
        pool_bytes: int,
        host_bytes: int = 0,
        threads: int = 1,
        populate: bool = False,
        device: str | None = None,
        hosts: str | None = None,
        deadline_ms: int = 0,
    ) -> None:
        self._guard = Guard()
        self._pointer: ct.c_void_p | None = None
        config = _lib.BlockConfig(
            ns=namespace._c(),
            group=encoded("group", group),
            value_bytes=number("value_bytes", value_bytes, U64_MAX),
            pool_bytes=number("pool_bytes", pool_bytes, U64_MAX),
            host_bytes=number("host_bytes", host_bytes, U64_MAX),
            threads=number("threads", threads),
            populate=populate,
            device=encoded_or_none("device", device),
            hosts=encoded_or_none("hosts", PEER_ANY if hosts == "any" else hosts),
        )
        pointer = ct.c_void_p()
        err = lib.tern_blocks_open(
            encoded("path", path), ct.byref(config), milliseconds(deadline_ms), ct.byref(pointer)
        )
        if err:
            raise error_of(err, f"{path}: {lib.tern_blocks_error_text(None).decode()}")
        self._pointer = pointer

    def __enter__(self) -> Blocks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        lib.tern_blocks_close(self.__dict__.get("_pointer"))

    def close(self) -> None:
        """Closes the set, its pins and its threads. The blocks stay stored."""
        pointer, self._pointer = self._pointer, None
        lib.tern_blocks_close(pointer)

    @property
    def is_open(self) -> bool:
        return self._pointer is not None

    def _set(self) -> ct.c_void_p:
        if self._pointer is None:
            raise Invalid("the set of blocks is closed")
        return self._pointer

    def _error(self, err: int, keys: _Keys | None = None) -> TernError:
        error = error_of(err, lib.tern_blocks_error_text(self._pointer).decode())
        error.done = keys.told() if keys else []
        return error

    def _check(self, err: int) -> None:
        if err:
            raise self._error(err)

    def find(self, keys: Sequence[bytes], *, deadline_ms: int = 0) -> list[str]:
        """Returns each block's place: "pool", "host", "disk", "elsewhere" or "nowhere"."""
        k = _Keys(keys)
        self._check(lib.tern_blocks_find(self._set(), k.c, k.n, milliseconds(deadline_ms), k.marks, None))
        return [PLACES[mark] for mark in k.marks]

    def host_of(self, i: int) -> str | None:
        """Returns the peer that has the block of key i, as the last find or get learned. For a set
        with `hosts`.

        None: this host has the block, or no peer does.
        """
        name = lib.tern_blocks_host(self._set(), number("i", i))
        return name.decode() if name else None

    def front(self, keys: Sequence[bytes], *, deadline_ms: int = 0) -> int:
        """Returns the number of keys before the first one whose block is nowhere."""
        k, front = _Keys(keys), ct.c_uint32()
        self._check(lib.tern_blocks_find(self._set(), k.c, k.n, milliseconds(deadline_ms), None, ct.byref(front)))
        return front.value

    def get(self, keys: Sequence[bytes], values: Sequence[Value] | Spans, *, deadline_ms: int = 0) -> list[bool]:
        """Copies values into the caller's buffers.

        Returns:
            For each key, whether its value was copied. False: the block is not there, and the
            content of its buffer is undefined.

        Raises:
            TernError: the call failed; `done` of the exception is the list that would be returned.
        """
        k = _Keys(keys)
        v = _Values(values, k.n, written=True)
        err = lib.tern_blocks_get(self._set(), k.c, v.c, k.n, milliseconds(deadline_ms), k.marks)
        if err:
            raise self._error(err, k)
        return k.told()

    def put(self, keys: Sequence[bytes], values: Sequence[Value] | Spans, *, deadline_ms: int = 0) -> list[bool]:
        """Stores the values of keys whose block is not there.

        Returns:
            For each key, whether its block is there now. False: the pool had no room for it before
            the deadline.
        """
        k = _Keys(keys)
        v = _Values(values, k.n, written=False)
        err = lib.tern_blocks_put(self._set(), k.c, v.c, k.n, milliseconds(deadline_ms), k.marks)
        if err and self._error(err).kind not in ("BUSY", "POOL_EXHAUSTED"):
            raise self._error(err, k)
        return k.told()

    def touch(self, keys: Sequence[bytes], *, deadline_ms: int = 0) -> int:
        """Marks blocks as used. Returns how many of them are on some tier."""
        k, found = _Keys(keys), ct.c_uint32()
        self._check(lib.tern_blocks_touch(self._set(), k.c, k.n, milliseconds(deadline_ms), ct.byref(found)))
        return found.value

    def remove(self, keys: Sequence[bytes], *, deadline_ms: int = 0) -> int:
        """Removes blocks from all tiers. Returns how many blocks existed.

        Raises:
            Busy: until the deadline some blocks were pinned or in use; the others are removed.
        """
        k, removed = _Keys(keys), ct.c_uint32()
        self._check(lib.tern_blocks_remove(self._set(), k.c, k.n, milliseconds(deadline_ms), ct.byref(removed)))
        return removed.value

    def pin(self, keys: Sequence[bytes], *, deadline_ms: int = 0) -> BlockPin:
        """Loads blocks into the pool and pins them there until the BlockPin is closed."""
        k, pointer = _Keys(keys), ct.c_void_p()
        err = lib.tern_blocks_pin(self._set(), k.c, k.n, milliseconds(deadline_ms), k.marks, ct.byref(pointer))
        self._check(err)
        return BlockPin(self, pointer, k.told())

    def _unpin(self, pointer: ct.c_void_p, deadline_ms: int) -> None:
        self._check(lib.tern_blocks_unpin(ct.byref(pointer), deadline_ms))

    def counts(self) -> BlockCounts:
        c = _lib.BlockCounts()
        lib.tern_blocks_counts(self._set(), ct.byref(c))
        return BlockCounts(*(getattr(c, name) for name, _ in c._fields_))
