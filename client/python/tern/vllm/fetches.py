"""Fetches from other hosts that are under way, without an event loop: each step asks what has ended."""

from __future__ import annotations

import ctypes as ct
import time
from dataclasses import dataclass

from .. import _lib
from .._lib import STEP_NONE, lib
from ..connection import Connection
from ..errors import Busy, TernError, error_of
from ..layout import encoded
from ..session import Answered, Session

FETCH_S = 30.0  # so long a ticket that is BUSY is asked for again
AGAIN_S = 0.05  # the pause before that, where the daemon says none

_OK, _BUSY = 0, 8


@dataclass
class Fetch:
    """Of a ticket.

    until: when it is not repeated any more
    cookie: of the request that is under way, or was
    again: when it is asked for again; 0: it has been asked for
    error: that it ended with
    """

    session: Session
    ticket: str
    until: float
    cookie: int = 0
    again: float = 0.0
    error: TernError | None = None

    def put_off(self, why: Busy) -> None:
        """Until the daemon said. Raises it where that is too late."""
        self.again = time.monotonic() + max(AGAIN_S, why.retry_ms / 1000)
        if self.again > self.until:
            raise why


class Fetches:
    """Those of one connection, which knows this as it knows tern.Async: a synchronous call may be made meanwhile, and
    takes in answers that come before its own.

    lost: the daemon is
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.lost = False
        self._under_way: dict[int, Fetch] = {}
        connection._async = self

    @property
    def waiting(self) -> bool:
        return bool(self._under_way)

    def begin(self, session: Session, ticket: str) -> Fetch:
        """All that the ticket names, for a session that has matched just these tokens."""
        fetch = Fetch(session, ticket, time.monotonic() + FETCH_S)
        self._ask(fetch)
        return fetch

    def ended(self, fetch: Fetch) -> bool:
        """Whether it has ended, which it also has with its daemon. The session has what came; the error of one that
        failed is raised. One that is BUSY is repeated."""
        self.poll()
        if fetch.cookie in self._under_way:
            return False
        if fetch.again:
            if time.monotonic() >= fetch.again:
                self._ask(fetch)
            return False
        if isinstance(fetch.error, Busy):
            fetch.put_off(fetch.error)
            return False
        if fetch.error:
            raise fetch.error
        return True

    def drop(self, fetch: Fetch) -> None:
        """Its session is being closed, and nobody asks for it any more."""
        self._under_way.pop(fetch.cookie, None)

    def poll(self) -> None:
        """Takes in what has come. Whether the daemon is lost is known afterwards."""
        handle, answer, err = self.connection._handle, _lib.Answer(), _BUSY
        while handle is not None and (err := lib.tern_poll(handle.pointer, ct.byref(answer))) == _OK:
            fetch = self._under_way.pop(answer.cookie, None)
            if fetch is not None:
                fetch.error = self._taken(fetch.session, answer)
        self.lost = self.lost or err != _BUSY

    def _ask(self, fetch: Fetch) -> None:
        c, s = self.connection, fetch.session
        fetch.cookie, fetch.again, fetch.error = next(c._cookies), 0.0, None
        try:
            ticket = encoded("ticket", fetch.ticket)
            c._check(lib.tern_submit_fetch_ticket(c._p, s.handle, ticket, STEP_NONE, fetch.cookie))
            self._under_way[fetch.cookie] = fetch
        except TernError as why:
            fetch.error = why  # ended() says

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

    # ---- what a Connection and its sessions ask

    def _drain(self) -> None:
        self.poll()

    def _drain_soon(self) -> None:
        pass  # the next poll() looks

    def _has(self, session: Session) -> bool:
        return any(f.session is session for f in self._under_way.values())
