"""Leases: pages that an engine has ahead of need, so that a decode step waits for no request.

Pool.lease begins a Lease; tern_lease.h defines the calls.
"""

from __future__ import annotations

import ctypes as ct
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from . import _lib
from ._lib import lib
from .connection import Pool
from .errors import Busy, DaemonLost, TernError, error_of
from .guard import one_thread
from .layout import TokenList, c_ids, c_layout, milliseconds, number, step_number
from .session import Answered, Result, Session


@dataclass
class Told:
    """An answer to a commit, which was applied to the session's table, or an operation that was
    refused after its call had returned. If `failed` is true, each further call of the lease on that
    session raises the same error, so remove the session."""

    session: Session
    failed: bool
    result: Result
    error: TernError | None


@one_thread
class Lease:
    """A stock of pages of a pool, for sessions that decode.

    `extend` takes pages from the stock without a request, and `submit` sends the daemon a whole
    iteration without waiting. While a session is in a lease, any other call on it raises Conflict.
    The end of the lease's `with` block ends the lease: remove its sessions before. If an exception
    ends the block, the sessions are removed. The end of a session's own `with` block also removes
    that session.

    high: number of pages to which the stock of a group is refilled: one number, or one for each
        group name
    low: number of pages at or below which the stock of a group is refilled; in the form of `high`
    sessions: the most sessions at a time
    """

    def __init__(
        self, pool: Pool, *, high: int | Mapping[str, int], low: int | Mapping[str, int] | None, sessions: int
    ) -> None:
        self.pool, self.connection = pool, pool.connection
        self._handle = self.connection._handle  # it outlives the lease
        self._pointer: ct.c_void_p | None = None
        self._sessions: dict[int, Session] = {}
        self._slots: dict[int, int] = {}
        self._last_step = 0  # the highest step that was submitted
        layout, kept = c_layout(pool.groups, 1, 0, "lazy", "none")
        marks, pointer = (_lib.LeaseMarks * len(pool.groups))(), ct.c_void_p()
        for mark, g in zip(marks, pool.groups):
            most = 0 if g.family == "recurrent" else high if isinstance(high, int) else high[g.name]
            least = most // 2 if low is None else low if isinstance(low, int) else low[g.name]
            mark.high, mark.low = number("high", most), number("low", least) if most else 0
        c = self.connection
        c._check(
            lib.tern_lease_begin(
                c._p, pool.handle, ct.byref(layout), marks, number("sessions", sessions), ct.byref(pointer)
            )
        )
        del kept
        self._pointer = pointer
        c._holders.add(self)

    @property
    def _l(self) -> ct.c_void_p:
        if self._pointer is None:
            raise DaemonLost("this lease or its connection was closed: begin another lease")
        return self._pointer

    def _drop(self) -> None:
        self._pointer = self._handle = None  # the connection ends it

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            for s in [self._sessions[slot] for slot in self._slots.values()]:
                self._let_go(s)
            self.close()
        except TernError:
            pass  # the first exception says more; the lease ends with its connection

    def close(self, *, deadline_ms: int = 0) -> None:
        """Returns the stock to the daemon and ends the lease.

        Raises:
            Conflict: sessions are in the lease.
        """
        pointer = self._l
        self.connection._check(lib.tern_lease_end(ct.byref(pointer), milliseconds(deadline_ms)))
        self._drop()

    def add(self, s: Session) -> None:
        """Adds a session to the lease, with the lengths of its last answer.

        Raises:
            Busy: the lease has as many sessions as it was begun for, or the session's removal from
                a lease is not submitted yet.
            Conflict: the session is in a lease already.
        """
        now, slot = _lib.Result(), ct.c_uint32()
        now.lengths = _lib.Lengths(s.committed, s.written, s.allocated)
        now.tokens = s.tokens
        self.connection._check(lib.tern_lease_add(self._l, s.handle, ct.byref(now), ct.byref(slot)))
        self._sessions[slot.value], self._slots[s.handle] = s, slot.value
        s._lease = self

    def remove(self, s: Session, *, step: int) -> None:
        """Removes a session from the lease: after the next submit all calls can use it again.

        `step`: the last step that may touch pages which the daemon refused to assign.
        """
        self.connection._check(lib.tern_lease_remove(self._l, self._slot(s), s._named(step)))
        del self._slots[s.handle]
        s._lease = None

    def _let_go(self, s: Session) -> None:
        """Removes a session at the last step that was named or submitted, and submits the
        removal."""
        if self._last_step:
            s._named(self._last_step)
        try:
            self.remove(s, step=s._last_step)
        except Busy:  # the Step is full
            self._submitted()
            self.remove(s, step=s._last_step)
        self._submitted()

    def _submitted(self) -> None:
        try:
            self.submit()
        except Busy:
            self.wait()
            self.submit()

    def extend(self, s: Session, *, append: TokenList = (), written: int = 0, allocated: int = 0) -> None:
        """Extends a session as Session.extend does, with pages of the stock and without a request.

        append: at most 24 tokens
        written, allocated: the new lengths; 0 leaves a length unchanged

        Raises:
            Busy: the stock does not have that many pages now, or one request is full: call submit()
                without a step, then wait().
            Exhausted: neither the stock nor the pool has enough pages.
        """
        ids, runs, n = c_ids(append), ct.POINTER(_lib.Run)(), ct.c_uint32()
        written, allocated = number("written", written) or s.written, number("allocated", allocated) or s.allocated
        self.connection._check(
            lib.tern_lease_extend(
                self._l,
                self._slot(s),
                ids.ctypes.data_as(ct.POINTER(ct.c_uint32)),
                len(ids),
                written,
                allocated,
                ct.byref(runs),
                ct.byref(n),
            )
        )
        s.written, s.allocated, s.tokens = written, allocated, s.tokens + len(ids)
        r = _lib.Result(runs=runs, nruns=n.value)
        for name, first, pages in Answered(r, self.pool).runs:
            s._put(name, first, pages)

    def rewind(self, s: Session, length: int, *, step: int) -> None:
        """Rewinds as Session.rewind does. The freed pages do not go to the stock."""
        n = number("length", length)
        self.connection._check(lib.tern_lease_rewind(self._l, self._slot(s), n, s._named(step)))
        s.allocated, s.written, s.tokens = min(s.allocated, n), min(s.written, n), min(s.tokens, n)

    def commit(self, s: Session, depth: int, *, step: int) -> None:
        """Commits as Session.commit does; told() returns the answer.

        With a recurrent group, `depth` is the written length of the last extend, and `step` is the
        step that wrote it; otherwise the call raises Conflict. Then submit() with a step raises
        Busy until told() has returned the answer. Make the answer's copies before the next step.

        step: without a recurrent group, the last step that is dispatched before the answer is taken
        """
        n = number("depth", depth)
        self.connection._check(lib.tern_lease_commit(self._l, self._slot(s), n, s._named(step)))

    def submit(self, *, step: int = 0) -> None:
        """Submits the gathered operations to the daemon, without waiting.

        step: the step that is dispatched next; 0: none.

        Raises:
            Busy: do not dispatch `step`: the answer to a commit may still change the table, or too
                many answers are outstanding. Call wait(), told(), and submit again. Nothing is
                lost.
        """
        named = step_number(step) if step else 0
        self.connection._check(lib.tern_lease_submit(self._l, named))
        self._last_step = max(self._last_step, named)

    def wait(self, *, deadline_ms: int = 0) -> None:
        """Waits until all that was submitted is answered."""
        self.connection._check(lib.tern_lease_wait(self._l, milliseconds(deadline_ms)))

    def told(self) -> list[Told]:
        """Returns the answers to commits, and the operations that were refused late.

        The call also receives pages for the stock: make it in each iteration, while the device
        computes, even if its result is not used.
        """
        c, all_told = _lib.LeaseTold(), []
        while (err := lib.tern_lease_told(self._l, ct.byref(c))) == 0:
            s = self._sessions[c.slot]
            answer = Answered(c.result, self.pool, (c.text or b"").decode())
            if c.failed and s._lease is self:
                s._keep_at_most(answer.result)
            if answer.error:
                answer.error.numbers = (c.numbers[0], c.numbers[1])
            else:
                s.committed = answer.result.committed
                for name, first, pages in answer.runs:
                    s._put(name, first, pages)
            all_told.append(Told(s, bool(c.failed), answer.result, answer.error))
        if not isinstance(error_of(err, ""), Busy):  # Busy: there is no further answer
            self.connection._check(err)
        return all_told

    def stock(self, group: str) -> int:
        """Returns the number of pages of a group that can be taken now."""
        at = [g.name for g in self.pool.groups].index(self.pool.group(group).name)
        return int(lib.tern_lease_stock(self._l, at))

    def _slot(self, s: Session) -> int:
        return self._slots.get(s.handle, 0xFFFFFFFF)
