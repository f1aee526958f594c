"""Sessions with their tables of pages, turns, and batches of operations.

Pool.session opens a Session; tern.Async and tern.lease apply their answers to its tables through
`_take` and `_put`. Invariant: a session's tables and lengths are those of its last answer.
"""

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
    """A copy for the engine to make: page `source` of a group to page `target`, in stream order,
    before the session continues."""

    group: str
    source: int
    target: int


@dataclass
class Result:
    """The answer to an operation: the session's lengths, in tokens, and what is new."""

    committed: int
    written: int
    allocated: int
    tokens: int
    matched: int = 0  # tokens that a match found in the tree; 0 on a resume: see `written`
    fetched_kib: int = 0  # KiB of pages that arrived
    host_depth: int = 0  # match: depth after a fetch from the host tier (peer None)
    disk_depth: int = 0  # match: depth after a fetch from PEER_DISK; 0: not above `matched`
    copies: list[Copy] = field(default_factory=list)
    blob: bytes = b""  # fetch by ticket: the blob that was handed over
    arriving: int = 0  # fetch_wait: session's tokens once all arrived; 0: no more will
    host: str | None = None  # fetch: the peer that sent pages


class Answered:
    """A copy of a struct tern_result, whose arrays libtern lends only until the next call."""

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
        self.runs: list[tuple[str, int, Ids]] = []  # group, first entry, pages as in page_refs
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
    """The pages that a retract freed, or will free."""

    free_now: int  # device pages of all groups, free at once
    free_at_step: int  # device pages of all groups, free when the step has passed
    evictable: int = 0  # "host": the most pages that can be evicted once they are copied


@dataclass(frozen=True)
class Ticket:
    """A ticket of a session, by which another engine fetches it."""

    text: str  # for a router to pass on; anyone who has it can fetch
    stands_ms: int  # milliseconds that it is valid from now on


@dataclass(frozen=True)
class Stored:
    """The result of a store on the disk."""

    depth: int  # tokens that are on the disk now
    written: int  # bytes that this call wrote; 0: the disk already had all of them


def stored_depth(depth: int | None) -> int:
    """Returns the depth as libtern takes it; None: the daemon chooses."""
    return 0 if depth is None else number("depth", depth)


def refusal(err: int, text: str, r: _lib.Result | _lib.Retracted, pool: Pool) -> TernError:
    """Returns the exception of an answer, with the group's name in place of its number."""
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
    """One request, or all turns of one conversation. `table(group)` is its block table, which every
    answer updates.

    At the end of a `with` block the session is closed, at the highest step that was named to it. So
    name the step of each kernel that touches its pages. Every method raises the TernErrors that
    tern_session.h or tern_fetch.h lists for its tern_ function.

    pool, connection: the pool and connection that it was opened with
    handle: its number, as in tern.h
    committed, written, allocated: its three lengths, in tokens, as of the last answer
    tokens: number of tokens in its list
    open: False once it was closed or is GONE
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
            lib.tern_session_open(
                c._p, pool.handle, ct.byref(ns._c()), ct.byref(options), ms, ct.byref(handle)
            )
        )
        self.handle: int = handle.value
        self.committed = self.written = self.allocated = self.tokens = self._arriving = 0
        self.open = True
        self._last_step = STEP_NONE
        self._lease: Lease | None = None  # the lease that it is in
        self._tables: dict[str, Ids] = {g.name: np.zeros((16, 2), np.uint32) for g in pool.groups}

    # ---- the table

    def table(self, group: str) -> Ids:
        """Returns the page indices of a group, as a uint32 array that the caller owns.

        Entry i covers the tokens [i * page_tokens, (i + 1) * page_tokens); a recurrent group has
        one entry. 0 means no page. In a window group only the entries of the tokens from written -
        window on are valid. After `fetch_pages` the table includes the pages that are still to
        arrive. Call it again after each call on the session.
        """
        return self.page_refs(group)[:, 0].copy()

    def page_refs(self, group: str) -> Ids:
        """Returns the table with the generation of each page: uint32 rows of an index and a
        generation, as Pool.checksums_on_stream takes them."""
        return self._tables[group][: self.pool.group(group).pages_for(max(self.allocated, self._arriving))]

    def _forget(self) -> None:
        for table in self._tables.values():
            table[:] = 0

    def _take(self, answer: Answered) -> Result:
        """Applies an answer to this session: its lengths, and the changes of its table."""
        r = answer.result
        self.committed, self.written, self.allocated, self.tokens = r.committed, r.written, r.allocated, r.tokens
        self._arriving = r.arriving  # tokens once all has arrived; 0: no fetch is under way
        for name, first, pages in answer.runs:
            self._put(name, first, pages)
        for g in self.pool.groups:
            self._tables[g.name][g.pages_for(max(self.allocated, self._arriving)) :] = 0
        return r

    def _take_refused(self, answer: Answered) -> None:
        """Applies an answer with an error.

        Such an answer has the session's lengths too: a cancelled fetch is GONE, and what arrived
        before stays. An answer without tokens changes nothing here: the handle is gone, or the
        daemon did not look at the session. The session may still exist, for example in another
        turn.
        """
        if answer.result.tokens or answer.result.fetched_kib:
            self._take(answer)

    def _keep_at_most(self, has: Result) -> None:
        """Drops the table's pages behind the lengths in `has`. The daemon has refused an extend of
        the lease, so the session does not have these pages."""
        self.written, self.allocated = min(self.written, has.written), min(self.allocated, has.allocated)
        self.tokens = min(self.tokens, has.tokens)
        for g in self.pool.groups:
            self._tables[g.name][g.pages_for(self.allocated) :] = 0

    def _under_way(self) -> bool:
        """Returns whether a request of tern.Async is under way for the session.

        The request's answer may have arrived while a synchronous call waited for its own answer. If
        the synchronous call succeeded, the request's answer is the older one.
        """
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
                    return answer.result  # the fetch has ended since; its whole answer was applied
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
        """Begins a turn: finds and pins the longest committed prefix, or resumes the session.

        Afterwards compute the tokens behind `written`.

        Args:
            tokens: the whole prompt.
            step: the last step that may still touch pages that a resume frees, or STEP_NONE.
            keys: extra keys, in ascending order of position.

        Raises:
            Invalid: fewer tokens are in common with the session than are committed, or the session
                is retracted, or the STATE of the common length has left its table.
            Busy: a fetch of this session is under way, or a table of the daemon is full.
        """
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
        """Appends tokens, sets the written length and allocates pages. 0 leaves a length unchanged.

        Args:
            append: tokens to append to the session's list.
            written, allocated: the new lengths in tokens, neither of which may shrink.
            keys: extra keys of the appended tokens; positions are in the whole list.

        Raises:
            Exhausted: there are not enough pages; the session is unchanged.
            Quota: the request never fits.
        """
        listed = c_tokens(append, keys, self.tokens)
        tokens = ct.byref(listed.c) if len(listed.ids) else None
        lengths = number("written", written), number("allocated", allocated)
        return self._do(lib.tern_extend, deadline_ms, tokens, *lengths)

    def commit(self, depth: int, *, step: int, deadline_ms: int = 0) -> Result:
        """Commits whole chunks of pool.align_tokens tokens to the prefix tree, up to `depth`.

        They are published when `step`, which writes them, has passed: at once if it has passed
        already. A commit cannot be undone.
        """
        return self._do(lib.tern_commit, deadline_ms, number("depth", depth), self._named(step))

    def rewind(self, length: int, *, step: int, deadline_ms: int = 0) -> Result:
        """Frees the pages behind `length` and truncates the token list there."""
        return self._do(lib.tern_rewind, deadline_ms, number("length", length), self._named(step))

    def finish(self, length: int, *, step: int, deadline_ms: int = 0) -> Result:
        """Ends a turn and keeps the first `length` tokens for the next one."""
        return self._do(lib.tern_finish, deadline_ms, number("length", length), self._named(step))

    def slide(self, next_commit: int = 0, *, step: int, deadline_ms: int = 0) -> Result:
        """Removes STATE pages that have left the window; next_commit: depth of the next commit."""
        return self._do(lib.tern_slide, deadline_ms, number("next_commit", next_commit), self._named(step))

    def snapshot_release(self, *, deadline_ms: int = 0) -> Result:
        """Promises that nobody will resume from the committed length."""
        return self._do(lib.tern_snapshot_release, deadline_ms)

    def abort(self, *, step: int, deadline_ms: int = 0) -> Result:
        """Drops what is not committed, empties the table, and keeps the tokens of the last finished
        turn; the session may be matched again. Between finish() and the next match, extend, fetch
        or retract the call changes nothing."""
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
        """Fetches whole chunks of the session's tokens beyond `written`. Call match() before.

        The fetched pages replace the session's own pages behind its committed length. A prefetch
        has lower priority: no decode waits for it.

        Args:
            peer: name of the peer that has the tokens; None: the pool's host tier; PEER_DISK: the
                daemon's disk; PEER_ANY: the peer that has most of them, named in `host` of the
                result.
            step: the last step that may touch the replaced pages, or STEP_NONE.
            at_least: tokens that the session must have written at the end; the call waits for the
                source to have them. 0: as many as the source has.
            depth: the most tokens to fetch; 0: all.

        Raises:
            PeerLost, Corrupt, TimedOut: the pages that arrived stay. Retry, or compute the rest.
            Busy: the source is at its limit. Retry after `retry_ms`.
            Gone: the fetch was cancelled, or at_least cannot arrive.
        """
        fetch = self._fetch_from(peer, step, at_least, depth, prefetch)
        return self._do(lib.tern_fetch, deadline_ms, ct.byref(fetch))

    def _fetch_from(self, peer: str | None, step: int, at_least: int, depth: int, prefetch: bool) -> _lib.Fetch:
        return _lib.Fetch(
            peer=encoded_or_none("peer", peer),
            at_least=number("at_least", at_least),
            depth=number("depth", depth),
            prefetch=bool(prefetch),
            step=self._named(step),
        )

    def _fetch_by(self, ticket: str, step: int, *, follow: bool = False) -> _lib.Fetch:
        return _lib.Fetch(ticket=encoded("ticket", ticket), follow=follow, step=self._named(step))

    def fetch_ticket(self, ticket: str, *, step: int, deadline_ms: int = 0) -> Result:
        """Fetches all that the ticket names, to the last token. Success uses the ticket up.

        The session must have matched exactly the tokens that were handed over. `blob` of the result
        is the blob that was handed over with them.
        """
        return self._do(lib.tern_fetch, deadline_ms, ct.byref(self._fetch_by(ticket, step)))

    def ticket_open(self, *, stands_ms: int = 0, deadline_ms: int = 0) -> Ticket:
        """Opens a ticket of this session, which continues to run.

        A later hand_over sets the ticket's length and returns the same ticket with the length in
        its text; either text may be used. Until then the ticket keeps no pages, and it is gone when
        the session is closed or aborted, or after `stands_ms` milliseconds.
        """
        r, c = _lib.Ticket(), self.connection
        wanted = number("stands_ms", stands_ms), milliseconds(deadline_ms)
        c._check(lib.tern_ticket_open(c._p, self.handle, *wanted, ct.byref(r)))
        return Ticket(r.text.decode(), r.stands_ms)

    def fetch_follow(self, ticket: str, *, step: int, deadline_ms: int = 0) -> Result:
        """Fetches as fetch_ticket does, from a source session that may still run: chunks arrive as
        that session commits them, and the rest when it has been handed over.

        tern.Async has the form that does not block; fetch_wait reports the progress.
        """
        return self._do(lib.tern_fetch, deadline_ms, ct.byref(self._fetch_by(ticket, step, follow=True)))

    def fetch_wait(self, above: int, *, deadline_ms: int = 0) -> Result:
        """Waits until the fetch under way has written more than `above` tokens, or has ended.

        `arriving` of the result is 0 if the fetch has ended; the answer to the fetch has its
        result. The tables have the pages that arrived.

        Raises:
            Invalid: no fetch has begun since the last match.
        """
        return self._do(lib.tern_fetch_wait, deadline_ms, number("above", above))

    def fetch_pages(self, *, deadline_ms: int = 0) -> Result:
        """Adds the pages that are still to arrive to the tables. Touch them only when they have arrived."""
        return self._do(lib.tern_fetch_pages, deadline_ms)

    def hand_over(self, *, step: int, blob: bytes = b"", stands_ms: int = 0, deadline_ms: int = 0) -> Ticket:
        """Closes the session and makes a ticket of it, with all that it has at its written length.

        Commit all whole chunks first.

        Args:
            step: the last step that writes its pages.
            blob: bytes of the engine's own, which the daemon does not interpret.
            stands_ms: milliseconds that the ticket is valid; 0: the daemon's maximum.
        """
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
        """Cancels a fetch or a recover under way, such as one of tern.Async.

        The cancelled request succeeds if it was complete already, else it raises Gone. May be
        repeated.
        """
        c = self.connection
        c._check(lib.tern_fetch_cancel(c._p, self.handle, milliseconds(deadline_ms)))

    def retract(self, mode: str, *, step: int, deadline_ms: int = 0) -> Retracted:
        """Retracts the session from the device: its table is empty until recover().

        Args:
            mode: "host": what is committed is copied to the host tier; "drop": what is committed
                stays on the device, and the rest is dropped.
            step: the last step that may touch its pages, or STEP_NONE.
        """
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
        """Recovers a retracted session: its table is whole again. Write the tokens behind
        `written` again.

        For a session that is not retracted the call returns the lengths and the table as they are
        now: make it after TimedOut.
        """
        return self._do(lib.tern_recover, deadline_ms)

    def store(self, depth: int | None = None, *, deadline_ms: int = 0) -> Stored:
        """Stores the committed prefix on the daemon's disk and returns when it is durable.

        May be repeated.

        Args:
            depth: end of the prefix in tokens, rounded down to whole chunks; None: the daemon
                chooses. With STATE groups the prefix ends at the deepest resume point up to `depth`
                or, if there is none, at the first one behind it.
        """
        r, c, wanted = _lib.Stored(), self.connection, stored_depth(depth)
        c._check(lib.tern_store(c._p, self.handle, wanted, milliseconds(deadline_ms), ct.byref(r)))
        return Stored(r.depth, r.written)

    def turn(self, *, deadline_ms: int = 0) -> Turn:
        """Returns a turn, for `with session.turn() as turn:`, if clients race on one session."""
        return Turn(self, deadline_ms)

    def close(self, *, step: int, deadline_ms: int = 0) -> None:
        """Closes the session. If a turn of the session is in flight, the call waits for its end."""
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
            self.open = False  # the session ended with its engine or its daemon


@one_thread
class Turn(Session):
    """Exclusive use of a session for one client, for the duration of a `with` block.

    If another turn is in flight, the block raises Busy at once. While this turn is in flight, calls
    on the session itself raise Busy. The turn is used like the session, also in batches and by
    Async, and has the same tables and lengths. It ends at the highest step that was named to the
    session, so name the step of each kernel that touches its pages.

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
        except Gone:  # the turn ended by itself, at its deadline: another turn may have followed
            if kind is None:
                raise

    # ---- data of a turn beside KV

    def append_record(
        self,
        tokens: TokenList,
        logprobs: Sequence[float] | npt.NDArray[Any] | None = None,
        blobs: Mapping[str, object] = MappingProxyType({}),
        *,
        deadline_ms: int = 0,
    ) -> Recorded:
        """Appends a turn record.

        Args:
            tokens: the whole list of token ids, which begins with the recorded list.
            logprobs: one for each token behind the recorded list, or None.
            blobs: up to four, bytes or arrays by name.

        Raises:
            Conflict: the recorded list is no prefix of `tokens`, or `tokens` is not longer.
            TimedOut: records() shows whether the record exists. If it does, a repeated call raises
                Conflict.
        """
        return records.append(self.connection, self.handle, tokens, logprobs, blobs, deadline_ms)

    def records(self, first: int = 0, *, blobs: bool = True, deadline_ms: int = 0) -> list[Record]:
        """Returns the records from number `first` on, as copies: token ids and log-probabilities of
        all, and the blobs that are still stored, unless blobs=False."""
        return records.read(self.connection, self.handle, first, blobs, deadline_ms)

    def merged(self, *, deadline_ms: int = 0) -> Merged:
        """Returns all records merged, as copies: token ids and log-probabilities of all, and the
        blobs of the last."""
        all_records = self.records(blobs=False, deadline_ms=deadline_ms)
        last = self.records(len(all_records) - 1, deadline_ms=deadline_ms) if all_records else []
        return records.merge(all_records, last)

    def rollback(self, tokens: TokenList, *, step: int, deadline_ms: int = 0) -> Recorded:
        """Keeps the records from record 0 on as long as their tokens together are a prefix of
        `tokens`, and drops all later records; [] drops all.

        If the session has committed more than is left, its table is dropped: match anew. `step` is
        the last step that may touch its pages.
        """
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
    """An operation of a batch. After the run it has a result or an error, or neither if a barrier
    before it failed."""

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
            self.session._take_refused(answer)  # a commit may have done a part of its work


class BatchFailed(TernError):
    """Operations of a batch in a `with` block failed; `failed` has them."""

    kind = "BATCH"

    def __init__(self, failed: list[Op]) -> None:
        super().__init__(f"{len(failed)} operations failed; the first: {failed[0].error}")
        self.failed = failed


@one_thread
class Batch:
    """The operations of one iteration, in order, as one request.

    `with batch:` sends them at the end of the block and raises BatchFailed if an operation failed;
    run() sends them and does not raise their errors. Afterwards the batch is empty, also if no
    answer arrived, and may be used again. If nothing was sent, the batch is unchanged.

    commit, rewind, finish, slide, snapshot_release, abort and close add the operation of the
    Session method of that name. Each returns its Op.
    """

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
        """Adds an extend.

        base: number of tokens in the session's list at that point, if an earlier operation of this
        batch appends some; None: the number now.
        """
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
        """Makes the last added operation a barrier: if it fails, later operations are not tried."""
        lib.tern_batch_barrier(self._b)

    def run(self, *, deadline_ms: int = 0) -> list[Op]:
        """Sends all operations as one request and returns them. An empty batch sends nothing."""
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
        """Returns the operations of the request that was just tried, in the order of their results:
        libtern's list and this one become empty together. Returns [] if nothing was sent."""
        if lib.tern_batch_count(self._b):
            return []
        ops, self.ops = self.ops, []
        return ops

    def _answers(self, ops: list[Op], results: Any, done: int) -> list[Answered]:
        text, p = lib.tern_error_text, self.connection._p
        answers = [
            Answered(results[i], op.session.pool, text(p, ct.byref(results[i])).decode())
            for i, op in enumerate(ops[:done])
        ]
        for i, answer in enumerate(answers):
            if answer.error:
                n = (ct.c_uint64 * 2)()
                lib.tern_error_numbers(p, ct.byref(results[i]), n)
                answer.error.numbers = (n[0], n[1])
        return answers
