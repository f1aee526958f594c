"""Fetches from other hosts that are under way, without an event loop: each step asks what has ended."""

from __future__ import annotations

import ctypes as ct

from .. import _lib
from .._lib import STEP_NONE, lib
from ..connection import Connection
from ..errors import TernError, error_of
from ..layout import encoded
from ..session import Answered, Session

_OK = 0


class Fetches:
    """Those of one connection, which knows this as it knows tern.Async: a synchronous call may be made meanwhile, and
    takes in answers that come before its own."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._cookie = 0
        self._under_way: dict[int, Session] = {}
        self._ended: dict[int, TernError | None] = {}
        connection._async = self

    def begin(self, session: Session, ticket: str) -> int:
        """All that the ticket names, for a session that has matched just these tokens. Returns its number."""
        self._cookie += 1
        p, c = self.connection._p, self.connection
        c._check(lib.tern_submit_fetch_ticket(p, session.handle, encoded("ticket", ticket), STEP_NONE, self._cookie))
        self._under_way[self._cookie] = session
        return self._cookie

    def ended(self, number: int) -> bool:
        """Whether it has ended, which it also has with its daemon. The session has what came; the error of one that failed is raised, once."""
        self._drain()
        if number in self._under_way:
            return False
        error = self._ended.pop(number, None)
        if error:
            raise error
        return True

    def drop(self, number: int) -> None:
        """Its session is being closed, and nobody asks for it any more."""
        self._under_way.pop(number, None)
        self._ended.pop(number, None)

    # ---- what a Connection and its sessions ask

    def _drain(self) -> None:
        handle, answer = self.connection._handle, _lib.Answer()
        while handle is not None and lib.tern_poll(handle.pointer, ct.byref(answer)) == _OK:
            session = self._under_way.pop(answer.cookie, None)
            if session is not None:
                self._ended[answer.cookie] = self._taken(session, answer)

    def _taken(self, session: Session, answer: _lib.Answer) -> TernError | None:
        text = lib.tern_error_text(self.connection._p).decode()
        if answer.n == 0:
            return error_of(answer.err, text)
        told = Answered(answer.results[0], session.pool, text)
        if told.error:
            session._take_refused(told)
            return told.error
        session._take(told)
        return None

    def _drain_soon(self) -> None:
        pass  # the next ended() looks

    def _has(self, session: Session) -> bool:
        return any(s is session for s in self._under_way.values())
