"""Turn records: data that a turn leaves with its session beside KV.

session.Turn has the public calls; the functions here pass their arguments to libtern and copy the
answers.
"""

from __future__ import annotations

import ctypes as ct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _lib
from ._lib import lib
from .connection import Connection
from .errors import Invalid, error_of
from .layout import Ids, TokenList, c_ids, encoded, milliseconds, number

Logprobs = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_AT_ONCE = 64  # records read in one call: the most that one answer of the daemon has


@dataclass(frozen=True)
class Recorded:
    """The records of a session after a change."""

    length: int  # tokens of all records together
    records: int  # number of the session's records


@dataclass(frozen=True)
class Record:
    """One turn record, which covers the tokens [first, length) of the recorded list.

    The arrays are copies that the caller owns; later changes of the turn or the session do not
    affect them.
    """

    first: int
    length: int
    tokens: Ids
    logprobs: Logprobs | None  # one for each token; None: the turn left none
    blobs: dict[str, Bytes]  # those that are still stored
    dropped: tuple[str, ...]  # names of those that were dropped


@dataclass(frozen=True)
class Merged:
    """All records merged into one list, with the blobs of the last record. The arrays are
    copies."""

    tokens: Ids  # of all records
    logprobs: Logprobs  # of all records; NaN where a record has none
    blobs: dict[str, Bytes]  # of the last record


def _logprobs(given: object) -> Logprobs:
    try:
        with np.errstate(over="ignore"):  # the daemon reports the one that is not finite
            values = np.ascontiguousarray(given, np.float32)
    except (TypeError, ValueError):
        raise Invalid("log-probabilities must be a list of numbers") from None
    if np.ndim(given) != 1:  # type: ignore[arg-type]
        raise Invalid(f"log-probabilities must be a list of numbers, not of shape {np.shape(given)}")  # type: ignore[arg-type]
    return values


def _bytes(name: str, given: object) -> Bytes:
    """Returns all bytes of `given` in the order of its elements, copied only if not contiguous."""
    try:
        array = given if isinstance(given, np.ndarray) else np.asarray(memoryview(given))  # type: ignore[arg-type]
    except TypeError:
        raise Invalid(f"blob {name!r}: pass bytes or an array, not {type(given).__name__}") from None
    if array.dtype.hasobject:
        raise Invalid(f"blob {name!r}: an array of objects has no bytes to store")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def append(
    c: Connection,
    turn: int,
    tokens: TokenList,
    logprobs: object,
    blobs: Mapping[str, object],
    deadline_ms: int,
) -> Recorded:
    ids = c_ids(tokens)
    values = _logprobs(() if logprobs is None else logprobs)
    contents = {name: _bytes(name, given) for name, given in blobs.items()}
    named = (_lib.Blob * len(contents))(
        *(_lib.Blob(encoded("the name of a blob", name), len(b), b.ctypes.data) for name, b in contents.items())
    )
    record = _lib.NewRecord(
        ids.ctypes.data_as(ct.POINTER(ct.c_uint32)),
        len(ids),
        len(values),
        values.ctypes.data_as(ct.POINTER(ct.c_float)),
        named,
        len(named),
    )
    told = _lib.Recorded()
    c._check(lib.tern_record_put(c._p, turn, ct.byref(record), milliseconds(deadline_ms), ct.byref(told)))
    return Recorded(told.length, told.records)


def rollback(
    c: Connection, turn: int, tokens: TokenList, step: int, deadline_ms: int
) -> tuple[Recorded, _lib.Recorded]:
    ids, told = c_ids(tokens), _lib.Recorded()
    whole = _lib.Tokens(v=ids.ctypes.data_as(ct.POINTER(ct.c_uint32)), n=len(ids))
    ms = milliseconds(deadline_ms)
    c._check(lib.tern_record_rollback(c._p, turn, ct.byref(whole), step, ms, ct.byref(told)))
    return Recorded(told.length, told.records), told


def _copied(s: _lib.Section, dtype: type[np.generic]) -> npt.NDArray[Any]:
    array = np.empty(s.bytes // np.dtype(dtype).itemsize, dtype)
    err = lib.tern_section_read(ct.byref(s), 0, array.ctypes.data, s.bytes)
    if err:
        raise error_of(err, "a section of the record is shorter than its header says")
    return array


def _record(r: _lib.Record, blobs: bool) -> Record:
    listed = {r.blobs[i].name.decode(): r.blobs[i] for i in range(r.nblobs)}
    return Record(
        r.from_,
        r.length,
        _copied(r.tokens, np.uint32),
        _copied(r.logprobs, np.float32) if r.logprobs.bytes else None,
        {name: _copied(b.at, np.uint8) for name, b in listed.items() if blobs and not b.dropped},
        tuple(name for name, b in listed.items() if b.dropped),
    )


def read(c: Connection, turn: int, first: int, blobs: bool, deadline_ms: int) -> list[Record]:
    ms = milliseconds(deadline_ms)
    at, read = number("first", first), list[Record]()
    n, records, told = ct.c_uint32(), ct.c_uint32(1), (_lib.Record * _AT_ONCE)()
    while True:
        c._check(lib.tern_record_get(c._p, turn, at, told, _AT_ONCE, ms, ct.byref(n), ct.byref(records)))
        read += [_record(told[i], blobs) for i in range(n.value)]
        at += n.value
        if n.value == 0 or at >= records.value:
            return read


def merge(all_records: list[Record], last: list[Record]) -> Merged:
    """Merges all records. last: a list of the last record, with its blobs; [] without records."""
    missing = [
        np.full(len(r.tokens), np.nan, np.float32) if r.logprobs is None else r.logprobs for r in all_records
    ]
    return Merged(
        np.concatenate([np.empty(0, np.uint32), *(r.tokens for r in all_records)]),
        np.concatenate([np.empty(0, np.float32), *missing]),
        last[0].blobs if last else {},
    )
