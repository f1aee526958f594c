"""Sessions with their tables of pages, and batches of their operations."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _lib, records
from ._lib import STEP_NONE, lib
from .connection import Engine, Pool
from .errors import DaemonLost, Gone, Invalid, Shortage, TernError, error_of
from .guard import one_thread
from .layout import (
    MODES,
    ExtraKey,
    Ids,
    Namespace,
    TokenList,
    c_tokens,
    choice,
    encoded,
    encoded_or_none,
    milliseconds,
    number,
    step_number,
)
from .records import Merged, Record, Recorded

if TYPE_CHECKING:
    from .lease import Lease


@dataclass(frozen=True)
class Copy:
    """Copy page `source` of a group into page `target`, in stream order, before the session goes on."""

    group: str
    source: int
    target: int


@dataclass
class Result:
    """What an operation answered: the lengths of the session, in tokens, and what is new."""

    committed: int
    written: int
    allocated: int
    tokens: int
    matched: int = 0  # what a match found in the tree; 0 on a resume, where `written` says what is there
    fetched_kib: int = 0
    host_depth: int = 0  # of a match: what a fetch from the host tier (None) would bring
    disk_depth: int = 0  # of a match: what a fetch from PEER_DISK would bring; 0: no more than is there
    copies: list[Copy] = field(default_factory=list)
    blob: bytes = b""  # of a fetch by ticket: what was handed over with it
    arriving: int = 0  # of a fetch_wait: what is still coming brings the session to this; 0: nothing is
    host: str | None = None  # of a fetch: the peer that pages came from


class Answered:
    """A struct tern_result as Python has it. Its arrays are borrowed until the next call, so all is copied."""

    def __init__(self, r: _lib.Result, pool: Pool, text: str = "") -> None:
        self.error = refusal(r.err, text, r, pool) if r.err else None
        self.result = Result(
            r.lengths.committed,
            r.lengths.written,
            r.lengths.allocated,
            r.tokens,
            r.matched,
            r.fetched_kib,
            r.host_depth,
            r.disk_depth,
            blob=ct.string_at(r.blob, r.blob_bytes) if r.blob_bytes else b"",
            arriving=r.arriving,
            host=r.host.decode() if r.host else None,
        )
        self.runs: list[tuple[str, int, Ids]] = []  # of pages as Session.page_refs has them
        for i in range(r.nruns):
            run = r.runs[i]
            name, pages = pool.groups[run.group].name, np.zeros((run.n, 2), np.uint32)
            if run.n:
                pages[:] = np.ctypeslib.as_array(ct.cast(run.pages, ct.POINTER(ct.c_uint32)), (run.n, 2))
            self.runs.append((name, run.first, pages))
            if run.from_page.index:
                self.result.copies.append(Copy(name, run.from_page.index, run.pages[0].index))


@dataclass(frozen=True)
class Retracted:
    free_now: int  # device pages of all groups
    free_at_step: int  # when the step has passed
    evictable: int = 0  # "host": pages that may go when they are copied, at most; all 0: nothing comes free


@dataclass(frozen=True)
class Ticket:
    text: str  # for a router to pass on; whoever has it can fetch
    stands_ms: int  # from now on


@dataclass(frozen=True)
class Stored:
    depth: int  # tokens that the disk holds now
    written: int  # bytes that were written for it; 0: all of it was there


def stored_depth(depth: int | None) -> int:
    """None: the daemon chooses."""
    return 0 if depth is None else number("depth", depth)


def refusal(err: int, text: str, r: _lib.Result | _lib.Retracted, pool: Pool) -> TernError:
    """The exception of an answer. Libtern knows groups by number only."""
    shortage = shortage_of(r.shortage, pool)
    text = text.replace(f"group {r.shortage.group} needs", f"group {shortage.group!r} needs", 1)
    error = error_of(err, text, shortage, getattr(r, "retry_ms", 0))
    if isinstance(error, Invalid) and isinstance(r, _lib.Result):
        error.align, error.handed = r.align, r.handed
    return error


def shortage_of(c: _lib.Shortage, pool: Pool) -> Shortage:
    name = pool.groups[c.group].name if c.group < len(pool.groups) else str(c.group)
    return Shortage(name, c.needed, c.free, c.evictable, c.retiring, c.until_step)


@one_thread
class Session:
    """One request, or all turns of one conversation. `table(group)` is its block table, kept up to
    date by every answer. In a `with` block it is closed at the end, at the highest step that was
    named to it, so name the step of each kernel that touches its pages.

    pool, connection: what it was opened with
    handle: its number, as tern.h has it
    committed, written, allocated: its three lengths, in tokens, as the last answer told them
    tokens: how many tokens its list has
    open: it was not closed, and is not GONE
    """

    def __init__(
        self,
        pool: Pool,
        ns: Namespace,
        *,
        blobs_kept: int = 0,
        merging: bool = False,
        deadline_ms: int = 0,
    ) -> None:
        self.pool, self.connection = pool, pool.connection
        c, handle, ms = self.connection, ct.c_uint64(), milliseconds(deadline_ms)
        options = _lib.SessionOptions(number("blobs_kept", blobs_kept), bool(merging))
        c._check(
            lib.tern_session_open_with(
                c._p, pool.handle, ct.byref(ns._c()), ct.byref(options), ms, ct.byref(handle)
            )
        )
        self.handle: int = handle.value
        self.committed = self.written = self.allocated = self.tokens = self._arriving = 0
        self.open = True
        self._last_step = STEP_NONE
        self._lease: Lease | None = None  # that it is in
        self._tables: dict[str, Ids] = {g.name: np.zeros((16, 2), np.uint32) for g in pool.groups}

    # ---- the table

    def table(self, group: str) -> Ids:
        """Page indices of a group: entry i covers tokens [i * page_tokens, (i + 1) * page_tokens);
        a recurrent group has one. 0 means no page; of a window group use the entries of the tokens from
        `written` - `window` on, and none before. After `fetch_pages` it goes on to the end of what is still to come.
        Take it anew after each call on the session."""
        return self.page_refs(group)[:, 0].copy()

    def page_refs(self, group: str) -> Ids:
        """The same with the generation of each page: rows of an index and a generation, as
        Pool.checksums_on_stream takes them."""
        return self._tables[group][: self.pool.group(group).pages_for(max(self.allocated, self._arriving))]

    def _forget(self) -> None:
        for table in self._tables.values():
            table[:] = 0

    def _take(self, answer: Answered) -> Result:
        """An answer of this session: its lengths, and what is new in its table."""
        r = answer.result
        self.committed, self.written, self.allocated, self.tokens = r.committed, r.written, r.allocated, r.tokens
        self._arriving = r.arriving  # tokens that it will have; 0: no fetch is under way
        for name, first, pages in answer.runs:
            self._put(name, first, pages)
        for g in self.pool.groups:
            self._tables[g.name][g.pages_for(max(self.allocated, self._arriving)) :] = 0
        return r

    def _take_refused(self, answer: Answered) -> None:
        """An error tells what the session has, too: a fetch that was cancelled is answered GONE, and what came
        before stays. That of a handle which is gone, or of a request that was not looked at, tells of no
        tokens. It changes nothing here, because the session itself may live on: in another turn, for example."""
        if answer.result.tokens or answer.result.fetched_kib:
            self._take(answer)

    def _keep_at_most(self, has: Result) -> None:
        """An extend of the lease was refused late: the pages behind `has` are not the session's."""
        self.written, self.allocated = min(self.written, has.written), min(self.allocated, has.allocated)
        self.tokens = min(self.tokens, has.tokens)
        for g in self.pool.groups:
            self._tables[g.name][g.pages_for(self.allocated) :] = 0

    def _under_way(self) -> bool:
        """Is one of tern.Async's requests? Its answer may have come while a synchronous call waited for its own,
        and is older then, if that call went well."""
        asynchronous = self.connection._async
        return asynchronous is not None and asynchronous._has(self)

    def _put(self, name: str, first: int, pages: Ids) -> None:
        table, end = self._tables[name], first + len(pages)
        if end > len(table):
            table = np.zeros((max(end, 2 * len(table)), 2), np.uint32)
            table[: len(self._tables[name])] = self._tables[name]
            self._tables[name] = table
        table[first:end] = pages

    def apply(self, copies: Iterable[Copy]) -> None:
        """Makes the copies at once, for an engine that computes on the host."""
        for c in copies:
            pages = self.pool.pages(c.group)
            pages[c.target] = pages[c.source]

    # ---- calls

    def _named(self, given: int) -> int:
        step = step_number(given)
        if 0 < step < STEP_NONE:
            self._last_step = step if self._last_step == STEP_NONE else max(step, self._last_step)
        return step

    def _do(self, call: Callable[..., int], deadline_ms: int, *args: object) -> Result:
        r = _lib.Result()
        err = call(self.connection._p, self.handle, *args, milliseconds(deadline_ms), ct.byref(r))
        if err == 0:
            answer = Answered(r, self.pool)
            if self._under_way():
                self.connection._catch_up()
                if answer.result.arriving and not self._under_way():
                    return answer.result  # the fetch has ended since, and its answer, which tells all, is taken
            return self._take(answer)
        text = self.connection._text()
        if r.err == err and not self._under_way():
            self._take_refused(Answered(r, self.pool))
        raise self.connection._numbered(refusal(err, text, r, self.pool))

    def match(
        self,
        tokens: TokenList,
        *,
        step: int = STEP_NONE,
        keys: Iterable[ExtraKey] = (),
        deadline_ms: int = 0,
    ) -> Result:
        """Begins a turn: finds and pins the longest committed prefix, or resumes the session."""
        listed = c_tokens(tokens, keys)
        return self._do(lib.tern_match, deadline_ms, ct.byref(listed.c), self._named(step))

    def extend(
        self,
        *,
        append: TokenList = (),
        written: int = 0,
        allocated: int = 0,
        keys: Iterable[ExtraKey] = (),
        deadline_ms: int = 0,
    ) -> Result:
        """Appends tokens, says what is written, gets pages. 0 leaves a length as it is."""
        listed = c_tokens(append, keys, self.tokens)
        tokens = ct.byref(listed.c) if len(listed.ids) else None
        lengths = number("written", written), number("allocated", allocated)
        return self._do(lib.tern_extend, deadline_ms, tokens, *lengths)

    def commit(self, depth: int, *, step: int, deadline_ms: int = 0) -> Result:
        """Gives whole chunks of pool.align_tokens tokens to the prefix tree, written by `step`. They are
        published when it passes: at once, if it has passed already."""
        return self._do(lib.tern_commit, deadline_ms, number("depth", depth), self._named(step))

    def rewind(self, length: int, *, step: int, deadline_ms: int = 0) -> Result:
        """Gives back what is behind `length`."""
        return self._do(lib.tern_rewind, deadline_ms, number("length", length), self._named(step))

    def finish(self, length: int, *, step: int, deadline_ms: int = 0) -> Result:
        """Ends a turn and keeps `length` tokens for the next one."""
        return self._do(lib.tern_finish, deadline_ms, number("length", length), self._named(step))

    def slide(self, next_commit: int = 0, *, step: int, deadline_ms: int = 0) -> Result:
        return self._do(lib.tern_slide, deadline_ms, number("next_commit", next_commit), self._named(step))

    def snapshot_release(self, *, deadline_ms: int = 0) -> Result:
        return self._do(lib.tern_snapshot_release, deadline_ms)

    def abort(self, *, step: int, deadline_ms: int = 0) -> Result:
        """Drops what is not committed and empties the table, and keeps the tokens of the last finished turn;
        the session may be matched again. Between finish() and the next match or extend it changes nothing."""
        return self._do(lib.tern_abort, deadline_ms, self._named(step))

    def fetch(
        self,
        peer: str | None,
        *,
        step: int,
        at_least: int = 0,
        depth: int = 0,
        prefetch: bool = False,
        deadline_ms: int = 0,
    ) -> Result:
        """Brings what `peer` has published, or with None what the host tier has, or with PEER_DISK what the
        daemon's disk has, or with PEER_ANY what the peer that has most of it has, which `host` of the result names, as far as it reaches
        beyond `written`; it takes the place of the session's own pages, which `step` may touch last.
        Waits until `at_least` tokens are published there. No decode waits for a `prefetch`: others go first."""
        wanted = number("at_least", at_least), number("depth", depth)
        named = encoded_or_none("peer", peer)
        call = lib.tern_prefetch if prefetch else lib.tern_fetch
        return self._do(call, deadline_ms, named, *wanted, self._named(step))

    def fetch_ticket(self, ticket: str, *, step: int, deadline_ms: int = 0) -> Result:
        """Brings all that the ticket names, to the last token: this session has matched just the tokens that were
        handed over. `blob` of the result came along. Success uses the ticket up."""
        return self._do(lib.tern_fetch_ticket, deadline_ms, encoded("ticket", ticket), self._named(step))

    def ticket_open(self, *, stands_ms: int = 0, deadline_ms: int = 0) -> Ticket:
        """A ticket of this session, which runs on: hand_over gives it its length, and answers the same ticket with the length in its text: either text will do.
        Until then it holds nothing; it is gone when the session is closed or aborted, or after `stands_ms`."""
        r, c = _lib.Ticket(), self.connection
        wanted = number("stands_ms", stands_ms), milliseconds(deadline_ms)
        c._check(lib.tern_ticket_open(c._p, self.handle, *wanted, ct.byref(r)))
        return Ticket(r.text.decode(), r.stands_ms)

    def fetch_follow(self, ticket: str, *, step: int, deadline_ms: int = 0) -> Result:
        """fetch_ticket of a session that may still run: chunks come as it commits them, and the end when it was
        handed over. tern.Async has the form that does not block; fetch_wait tells how far it has come."""
        return self._do(lib.tern_fetch_follow, deadline_ms, encoded("ticket", ticket), self._named(step))

    def fetch_wait(self, above: int, *, deadline_ms: int = 0) -> Result:
        """Waits until the fetch that is under way has brought more than `above` written tokens, or has ended
        (`arriving` is 0 then, and the fetch says how). The tables have what came. Invalid: none was begun."""
        return self._do(lib.tern_fetch_wait, deadline_ms, number("above", above))

    def fetch_pages(self, *, deadline_ms: int = 0) -> Result:
        """The tables get the pages of what is still to come. They are not to be touched before it has come."""
        return self._do(lib.tern_fetch_pages, deadline_ms)

    def hand_over(self, *, step: int, blob: bytes = b"", stands_ms: int = 0, deadline_ms: int = 0) -> Ticket:
        """Closes the session and makes a ticket of it: what it has at its written length, and the blob, wait for
        whoever shows it, for `stands_ms` (0: as long as the daemon lets it stand). Commit whole chunks first;
        `step` is the last that writes its pages."""
        r, c = _lib.Ticket(), self.connection
        wanted = number("stands_ms", stands_ms), milliseconds(deadline_ms)
        c._check(
            lib.tern_handoff(
                c._p, self.handle, self._named(step), bytes(blob), len(blob), *wanted, ct.byref(r)
            )
        )
        self._forget()
        self.committed = self.written = self.allocated = 0
        self.open = False
        return Ticket(r.text.decode(), r.stands_ms)

    def fetch_cancel(self, *, deadline_ms: int = 0) -> None:
        """Ends a fetch or a recover that is under way, such as one of tern.Async. That request itself is
        answered: as it would have been if it was complete already, else by Gone. It may be repeated."""
        c = self.connection
        c._check(lib.tern_fetch_cancel(c._p, self.handle, milliseconds(deadline_ms)))

    def retract(self, mode: str, *, step: int, deadline_ms: int = 0) -> Retracted:
        """Takes the session off the device: to the host tier ("host"), or all that is not committed
        ("drop"). Its table is empty until recover()."""
        r, c = _lib.Retracted(), self.connection
        how, ms = choice(MODES, "mode", mode), milliseconds(deadline_ms)
        err = lib.tern_retract(c._p, self.handle, how, self._named(step), ms, ct.byref(r))
        if err:
            raise c._numbered(refusal(err, c._text(), r, self.pool))
        self._forget()
        self.committed, self.written, self.allocated = (
            r.lengths.committed,
            r.lengths.written,
            r.lengths.allocated,
        )
        return Retracted(r.free_now, r.free_at_step, r.shortage.evictable)

    def recover(self, *, deadline_ms: int = 0) -> Result:
        """Brings a retracted session back: its table is whole again; write what `written` lacks. One that is not
        away is told its lengths and its table once more: call it after TimedOut."""
        return self._do(lib.tern_recover, deadline_ms)

    def store(self, depth: int | None = None, *, deadline_ms: int = 0) -> Stored:
        """Stores the committed prefix on the daemon's disk, up to `depth` tokens rounded down to whole chunks,
        and returns when it is durable; None: as much as the daemon chooses. With STATE groups it ends at a resume
        point, and where there is none up to `depth`, at the first behind it. It may be repeated."""
        r, c, wanted = _lib.Stored(), self.connection, stored_depth(depth)
        c._check(lib.tern_store(c._p, self.handle, wanted, milliseconds(deadline_ms), ct.byref(r)))
        return Stored(r.depth, r.written)

    def turn(self, *, deadline_ms: int = 0) -> Turn:
        """For `with session.turn() as turn:`, where several clients race on one session."""
        return Turn(self, deadline_ms)

    def close(self, *, step: int, deadline_ms: int = 0) -> None:
        """Ends the session, where a turn of it is in flight when that has ended."""
        r, c = _lib.Result(), self.connection
        named, ms = self._named(step), milliseconds(deadline_ms)
        c._check(lib.tern_session_close(c._p, self.handle, named, ms, ct.byref(r)))
        self._take(Answered(r, self.pool))  # nothing is left
        self.open = False

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.open:
            return
        try:
            if self._lease is not None:
                self._lease._let_go(self)
            self.close(step=self._last_step)
        except (Gone, DaemonLost):
            self.open = False  # it ended with its engine or its daemon


@one_thread
class Turn(Session):
    """The session for one client, from the beginning of a `with` block to its end: Busy is raised at
    once while another turn is in flight, and for whoever uses the session itself meanwhile. The turn
    is used like the session, also in batches and by Async, and shares all that it keeps: its table,
    its lengths. It ends at the highest step that was named to the session, so name the step of each
    kernel that touches its pages.

    handle: the turn's number; the session keeps its own
    """

    __slots__ = ("_deadline_ms", "_turn")

    def __init__(self, session: Session, deadline_ms: int) -> None:
        self.__dict__ = session.__dict__
        self._deadline_ms, self._turn = milliseconds(deadline_ms), session.handle

    @property
    def handle(self) -> int:  # type: ignore[override]
        return self._turn

    def __enter__(self) -> Turn:
        turn, c = ct.c_uint64(), self.connection
        c._check(lib.tern_turn_begin(c._p, self._turn, self._deadline_ms, ct.byref(turn)))
        self._turn = turn.value
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.open:
            return  # the turn closed the session
        try:
            c = self.connection
            c._check(lib.tern_turn_end(c._p, self._turn, self._last_step, self._deadline_ms))
        except DaemonLost:
            pass
        except Gone:  # it ended by itself, at its deadline: another turn may have come between
            if kind is None:
                raise

    # ---- what the turn leaves beside KV

    def append_record(
        self,
        tokens: TokenList,
        logprobs: Sequence[float] | npt.NDArray[Any] | None = None,
        blobs: Mapping[str, object] = MappingProxyType({}),
        *,
        deadline_ms: int = 0,
    ) -> Recorded:
        """Leaves a record. tokens: the whole list, which begins with what is recorded. logprobs: of the
        tokens behind that, one of each, or None. blobs: up to four, bytes or arrays by their names.
        After TimedOut records() tells whether it is there: repeating the call is a Conflict then."""
        return records.append(self.connection, self.handle, tokens, logprobs, blobs, deadline_ms)

    def records(self, first: int = 0, *, blobs: bool = True, deadline_ms: int = 0) -> list[Record]:
        """The records from that one on: token ids and log-probabilities of all, and the blobs of those
        that have them, unless blobs=False. The arrays are copies."""
        return records.read(self.connection, self.handle, first, blobs, deadline_ms)

    def merged(self, *, deadline_ms: int = 0) -> Merged:
        """All records as one, of which the last turn wins: token ids and log-probabilities of all, and
        the blobs of the last. The arrays are copies."""
        all_records = self.records(blobs=False, deadline_ms=deadline_ms)
        last = self.records(len(all_records) - 1, deadline_ms=deadline_ms) if all_records else []
        return records.merge(all_records, last)

    def rollback(self, tokens: TokenList, *, step: int, deadline_ms: int = 0) -> Recorded:
        """Takes the session back to the deepest record whose whole list these tokens begin with, or to
        none. Where it had committed more than is left, its table is given up: match anew. `step` is
        the last that may touch its pages."""
        named = self._named(step)
        told, now = records.rollback(self.connection, self.handle, tokens, named, deadline_ms)
        if self.allocated and not now.lengths.allocated:
            self._forget()
        self.committed, self.written, self.allocated = (
            now.lengths.committed,
            now.lengths.written,
            now.lengths.allocated,
        )
        self.tokens = now.tokens
        return told


@dataclass
class Op:
    """An operation of a batch. After the batch has run it has a result or an error; neither, if a
    barrier before it failed."""

    session: Session
    closes: bool = False
    result: Result | None = None
    error: TernError | None = None

    def _settle(self, answer: Answered, under_way: bool = False) -> None:
        self.error = answer.error
        if not self.error:
            self.result = self.session._take(answer)
            self.session.open = self.session.open and not self.closes
        elif not under_way:
            self.session._take_refused(answer)  # a commit may have got some of its way


class BatchFailed(TernError):
    """Operations of a batch in a `with` block failed: `failed` has them."""

    kind = "BATCH"

    def __init__(self, failed: list[Op]) -> None:
        super().__init__(f"{len(failed)} operations failed; the first: {failed[0].error}")
        self.failed = failed


@one_thread
class Batch:
    """The operations of one iteration, in order, as one request. `with batch:` sends them at the end
    of the block and raises BatchFailed if one of them failed; run() sends them and raises nothing of
    theirs. It is empty afterwards, also when no answer came, and may be used again; it is as it was if
    nothing was sent."""

    def __init__(self, engine: Engine) -> None:
        self.connection = engine.connection
        self._handle = self.connection._handle  # it outlives the batch
        self._pointer: ct.c_void_p | None = None
        self.ops: list[Op] = []
        pointer = ct.c_void_p()
        self.connection._check(lib.tern_batch_create(self.connection._p, ct.byref(pointer)))
        self._pointer = pointer
        self.connection._holders.add(self)

    @property
    def _b(self) -> ct.c_void_p:
        if self._pointer is None:
            raise DaemonLost("the connection of this batch was closed: connect again")
        return self._pointer

    def _drop(self) -> None:
        if self._pointer is not None:
            lib.tern_batch_destroy(self._pointer)
        self._pointer = self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self._drop()

    def __enter__(self) -> Batch:
        self.clear()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.clear()
        elif failed := [op for op in self.run() if op.error]:
            raise BatchFailed(failed)

    def __len__(self) -> int:
        return len(self.ops)

    def clear(self) -> None:
        self.ops = []
        if self._pointer is not None:
            lib.tern_batch_clear(self._pointer)

    def _add(self, s: Session, err: int, closes: bool = False) -> Op:
        self.connection._check(err)
        self.ops.append(Op(s, closes))
        return self.ops[-1]

    def extend(
        self,
        s: Session,
        *,
        append: TokenList = (),
        written: int = 0,
        allocated: int = 0,
        keys: Iterable[ExtraKey] = (),
        base: int | None = None,
    ) -> Op:
        """base: the tokens that the session will have then, where an earlier operation of this batch
        appends some; else what it has now."""
        listed = c_tokens(append, keys, s.tokens if base is None else number("base", base))
        tokens = ct.byref(listed.c) if len(listed.ids) else None
        lengths = number("written", written), number("allocated", allocated)
        return self._add(s, lib.tern_batch_extend(self._b, s.handle, tokens, *lengths))

    def commit(self, s: Session, depth: int, *, step: int) -> Op:
        n = number("depth", depth)
        return self._add(s, lib.tern_batch_commit(self._b, s.handle, n, s._named(step)))

    def rewind(self, s: Session, length: int, *, step: int) -> Op:
        n = number("length", length)
        return self._add(s, lib.tern_batch_rewind(self._b, s.handle, n, s._named(step)))

    def finish(self, s: Session, length: int, *, step: int) -> Op:
        n = number("length", length)
        return self._add(s, lib.tern_batch_finish(self._b, s.handle, n, s._named(step)))

    def slide(self, s: Session, next_commit: int = 0, *, step: int) -> Op:
        n = number("next_commit", next_commit)
        return self._add(s, lib.tern_batch_slide(self._b, s.handle, n, s._named(step)))

    def snapshot_release(self, s: Session) -> Op:
        return self._add(s, lib.tern_batch_snapshot_release(self._b, s.handle))

    def abort(self, s: Session, *, step: int) -> Op:
        return self._add(s, lib.tern_batch_abort(self._b, s.handle, s._named(step)))

    def close(self, s: Session, *, step: int) -> Op:
        return self._add(s, lib.tern_batch_session_close(self._b, s.handle, s._named(step)), closes=True)

    def barrier(self) -> None:
        """If the operation that was added last fails, those behind it are not tried."""
        lib.tern_batch_barrier(self._b)

    def run(self, *, deadline_ms: int = 0) -> list[Op]:
        """Sends all of it. An empty batch is nothing to do."""
        if not self.ops:
            return []
        results, done = ct.POINTER(_lib.Result)(), ct.c_uint32()
        err = lib.tern_batch_run(self._b, milliseconds(deadline_ms), ct.byref(results), ct.byref(done))
        ops = self._sent()
        self.connection._check(err)
        tried = list(zip(ops, self._answers(ops, results, done.value), [op.session._under_way() for op in ops]))
        if any(under_way for _, _, under_way in tried):
            self.connection._catch_up()
        for op, answer, under_way in tried:
            op._settle(answer, under_way)
        return ops

    def _sent(self) -> list[Op]:
        """Those of the request that was tried just now, whose results come in their order: libtern's list and this one
        become empty together. None, if nothing was sent."""
        if lib.tern_batch_count(self._b):
            return []
        ops, self.ops = self.ops, []
        return ops

    def _answers(self, ops: list[Op], results: Any, done: int) -> list[Answered]:
        text, p = lib.tern_result_text, self.connection._p
        answers = [Answered(results[i], op.session.pool, text(p, i).decode()) for i, op in enumerate(ops[:done])]
        for i, answer in enumerate(answers):
            if answer.error:
                n = (ct.c_uint64 * 2)()
                lib.tern_result_numbers(p, i, n)
                answer.error.numbers = (n[0], n[1])
        return answers
