"""Decode without waiting: pages that an engine holds ahead of need."""

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
    """An answer to a commit, which the session's table has taken in; or an operation that was refused after its
    call had returned: with `failed`, each further call on that session raises its error, so remove it."""

    session: Session
    failed: bool
    result: Result
    error: TernError | None


@one_thread
class Lease:
    """A stock of pages of a pool, for sessions that decode. `extend` takes pages from it without a request, and
    `submit` tells the daemon of a whole iteration without waiting. While a session is in a lease, any other call
    on it is a Conflict. In a `with` block the lease is ended: remove its sessions before. After an exception they
    are taken out of it, and so is a session whose own `with` block ends.

    high: the stock is filled up to so many pages of each group, or of each by name; low: when it has so many
    """

    def __init__(
        self, pool: Pool, *, high: int | Mapping[str, int], low: int | Mapping[str, int] | None, sessions: int
    ) -> None:
        self.pool, self.connection = pool, pool.connection
        self._handle = self.connection._handle  # it outlives the lease
        self._pointer: ct.c_void_p | None = None
        self._sessions: dict[int, Session] = {}
        self._slots: dict[int, int] = {}
        self._last_step = 0  # the highest that was submitted
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
            raise DaemonLost("this lease was closed, or its connection: begin another one")
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
            pass  # the exception says more; the lease ends with its connection

    def close(self, *, deadline_ms: int = 0) -> None:
        """Gives the stock back. Conflict: sessions are in the lease."""
        pointer = self._l
        self.connection._check(lib.tern_lease_end(ct.byref(pointer), milliseconds(deadline_ms)))
        self._drop()

    def add(self, s: Session) -> None:
        """The session comes under the lease, as the last answer has told it."""
        now, slot = _lib.Result(), ct.c_uint32()
        now.lengths = _lib.Lengths(s.committed, s.written, s.allocated)
        now.tokens = s.tokens
        self.connection._check(lib.tern_lease_add(self._l, s.handle, ct.byref(now), ct.byref(slot)))
        self._sessions[slot.value], self._slots[s.handle] = s, slot.value
        s._lease = self

    def remove(self, s: Session, *, step: int) -> None:
        """It leaves the lease with the next submit, and all calls may be used on it again. `step`: the last that
        may touch pages which the daemon refused to assign."""
        self.connection._check(lib.tern_lease_remove(self._l, self._slot(s), s._named(step)))
        del self._slots[s.handle]
        s._lease = None

    def _let_go(self, s: Session) -> None:
        """Removes it at the last step that was named or submitted, and tells the daemon."""
        if self._last_step:
            s._named(self._last_step)
        try:
            self.remove(s, step=s._last_step)
        except Busy:  # one Step is full
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
        """What Session.extend does, with pages of the stock. 0 leaves a length as it is. Busy: the stock has not so
        many pages now, or one request is full: submit(), without a step, then wait()."""
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
        """As Session.rewind. What is given back does not come to the stock."""
        n = number("length", length)
        self.connection._check(lib.tern_lease_rewind(self._l, self._slot(s), n, s._named(step)))
        s.allocated, s.written, s.tokens = min(s.allocated, n), min(s.written, n), min(s.tokens, n)

    def commit(self, s: Session, depth: int, *, step: int) -> None:
        """As Session.commit; told() has the answer. `step`: the last that is dispatched before that was taken. With a
        recurrent group, commit what the last extend has said is written, by the step that wrote it (else Conflict):
        submit() is Busy then until told() has the answer, whose copies are to be made before the next step."""
        n = number("depth", depth)
        self.connection._check(lib.tern_lease_commit(self._l, self._slot(s), n, s._named(step)))

    def submit(self, *, step: int = 0) -> None:
        """Tells the daemon what was gathered, without waiting. `step`: the one that is dispatched next; 0: none. Busy:
        do not dispatch it, since an answer to a commit may change the table first, or the daemon has not answered
        enough: wait(), told(), and submit again. Nothing is lost."""
        named = step_number(step) if step else 0
        self.connection._check(lib.tern_lease_submit(self._l, named))
        self._last_step = max(self._last_step, named)

    def wait(self, *, deadline_ms: int = 0) -> None:
        """Until all that was submitted is answered."""
        self.connection._check(lib.tern_lease_wait(self._l, milliseconds(deadline_ms)))

    def told(self) -> list[Told]:
        """What was answered to commits, and what was refused late. It takes the answers, also pages for the stock:
        call it in each iteration, while the device computes, also where nobody looks at what it returns."""
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
        if not isinstance(error_of(err, ""), Busy):  # that there is no more
            self.connection._check(err)
        return all_told

    def stock(self, group: str) -> int:
        """Pages that can be taken now."""
        at = [g.name for g in self.pool.groups].index(self.pool.group(group).name)
        return int(lib.tern_lease_stock(self._l, at))

    def _slot(self, s: Session) -> int:
        return self._slots.get(s.handle, 0xFFFFFFFF)
