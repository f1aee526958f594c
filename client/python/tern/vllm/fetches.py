"""Fetches from other hosts without an event loop: each step of the scheduler polls for those that
have ended."""

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

FETCH_S = 30.0  # a ticket that is BUSY is asked for again for so long
AGAIN_S = 0.05  # least pause before that

_OK, _BUSY = 0, 8


@dataclass
class Fetch:
    """A fetch of a ticket.

    until: monotonic time after which it is not repeated
    cookie: of its last request
    again: monotonic time of the next request; 0: it has been sent
    error: the error that it ended with
    """

    session: Session
    ticket: str
    until: float
    cookie: int = 0
    again: float = 0.0
    error: TernError | None = None

    def put_off(self, why: Busy) -> None:
        """Puts the request off for as long as the daemon asks. Raises `why` if that is too late."""
        self.again = time.monotonic() + max(AGAIN_S, why.retry_ms / 1000)
        if self.again > self.until:
            raise why


class Fetches:
    """The fetches of one connection, which calls this object as it calls tern.Async: a synchronous
    call may be made meanwhile, and receives the answers that arrive before its own.

    lost: the daemon is lost
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
        """Begins a fetch of all that the ticket names, for a session that has matched these
        tokens."""
        fetch = Fetch(session, ticket, time.monotonic() + FETCH_S)
        self._ask(fetch)
        return fetch

    def ended(self, fetch: Fetch) -> bool:
        """Returns whether the fetch has ended; it also ends with its daemon. The session then has
        what arrived. Raises the error of a fetch that failed; a fetch that is BUSY is repeated."""
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
        """Forgets a fetch whose session is being closed."""
        self._under_way.pop(fetch.cookie, None)

    def poll(self) -> None:
        """Receives the answers that have arrived. Afterwards `lost` is up to date."""
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
            wanted = _lib.Fetch(ticket=encoded("ticket", fetch.ticket), step=STEP_NONE)
            c._check(lib.tern_submit_fetch(c._p, s.handle, ct.byref(wanted), fetch.cookie))
            self._under_way[fetch.cookie] = fetch
        except TernError as why:
            fetch.error = why  # ended() raises it

    def _taken(self, session: Session, answer: _lib.Answer) -> TernError | None:
        text = lib.tern_error_text(self.connection._p, None).decode()
        if answer.n == 0:
            return error_of(answer.err, text)
        told = Answered(answer.results[0], session.pool, text)
        if told.error:
            session._take_refused(told)
            return told.error
        session._take(told)
        return None

    # ---- calls of a Connection and its sessions

    def _drain(self) -> None:
        self.poll()

    def _drain_soon(self) -> None:
        pass  # the next poll() receives the answers

    def _has(self, session: Session) -> bool:
        return any(f.session is session for f in self._under_way.values())
