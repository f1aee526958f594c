"""Requests with asyncio: many at once on one connection, from one event loop.

If a task is cancelled, the daemon still answers its request, and the answer is still applied to the
session; a cancelled fetch or recover is also cancelled at the daemon. Synchronous calls may be
mixed in.
"""

from __future__ import annotations

import asyncio
import ctypes as ct
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from select import POLLOUT

from . import _lib
from ._lib import STEP_NONE, lib
from .connection import Connection
from .errors import DaemonLost, error_of
from .layout import ExtraKey, Namespace, TokenList, U64_MAX, c_tokens, number, step_number
from .session import Answered, Batch, Op, Result, Session, Stored, stored_depth

_OK, _BUSY = 0, 8
EVENTS_QUEUED_MAX = 65536  # changes queued for the iterator of one subscription; more are lost


@dataclass(frozen=True)
class Event:
    """A change of one chunk of the prefix tree that ends at `depth`, in tokens."""

    number: int
    kind: str  # "stored", "tier" or "removed"
    depth: int
    chain: int  # identifies the namespace and all tokens and extra keys up to `depth`
    parent_chain: int  # chain of the chunk before this one; 0 for the first chunk
    pool: int
    on_device: bool  # after the change
    on_host: bool
    lost: int  # number of changes that were missed just before this one
    # For a stored chunk still in the tree, if the subscription has tokens=True; else empty.
    tokens: tuple[int, ...] = ()
    keys: tuple[ExtraKey, ...] = ()
    ns: int = 0  # a hash of the namespace


PAUSE_S = 0.001  # seconds until a connection that another thread uses is polled again

_KINDS = {1: "stored", 2: "tier", 3: "removed"}


def chains(ns: Namespace, tokens: TokenList, align_tokens: int, keys: Iterable[ExtraKey] = ()) -> list[int]:
    """Computes the chains of a token list's whole chunks, shallowest first, equal to Event.chain.

    Args:
        ns: namespace of the prefix.
        tokens: the whole list from its first token.
        align_tokens: tokens of a chunk (Pool.align_tokens).
        keys: extra keys, in ascending order of position.
    """
    listed, length = c_tokens(tokens, keys), number("align_tokens", align_tokens)
    found = (ct.c_uint64 * (len(listed.ids) // length if length else 0))()
    n = lib.tern_chains(ct.byref(ns._c()), ct.byref(listed.c), length, found, len(found))
    return list(found[:n])


class Async:
    """The asynchronous requests of one connection. Create it inside the event loop that uses it.

    Each request works as the method of the same name of Session, Batch or Connection, but has no
    deadline.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._fd = int(lib.tern_fd(connection._p, None))
        self._waiting: dict[int, Callable[[_lib.Answer], None]] = {}
        self._sessions: dict[int, list[Session]] = {}  # by cookie: the sessions of each request
        self._soon = False
        self._loop.add_reader(self._fd, self._drain)
        connection._async = self
        connection._holders.add(self)

    def _drop(self) -> None:
        """Stops polling, because the connection and its descriptor are closed."""
        if not self._loop.is_closed():
            self.close()

    def close(self) -> None:
        """Stops polling. Answers to requests under way are not delivered."""
        self.connection._async = None
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)

    # ---- the table of requests under way

    def _drain_soon(self) -> None:
        """Polls soon. A synchronous call may receive answers to requests, and then the descriptor
        has nothing to read."""
        if not self._soon and not self._loop.is_closed():
            self._soon = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        guard = self.connection._guard
        if not guard.enter():  # another thread is in a call, which receives the answers
            self._loop.call_later(PAUSE_S, self._drain)
            return
        try:
            self._drain_now()
        finally:
            guard.leave()

    def _drain_now(self) -> None:
        self._soon = False
        handle, answer, events = self.connection._handle, _lib.Answer(), ct.c_short()
        if handle is None:
            return
        while (err := lib.tern_poll(handle.pointer, ct.byref(answer))) == _OK:
            take = self._waiting.get(answer.cookie)
            if take:
                take(answer)
        if err != _BUSY:
            self._loop.remove_reader(self._fd)
        lib.tern_fd(handle.pointer, ct.byref(events))
        if events.value & POLLOUT:
            self._loop.add_writer(self._fd, self._drain)
        else:
            self._loop.remove_writer(self._fd)

    def _has(self, session: Session) -> bool:
        """Returns whether a request of the session, or of its turn, is under way."""
        asked = [s for sessions in self._sessions.values() for s in sessions]
        return not self._loop.is_closed() and any(s._tables is session._tables for s in asked)

    def _submit(
        self, call: Callable[[int], int], take: Callable[[_lib.Answer], object], sessions: Iterable[Session] = ()
    ) -> asyncio.Future[object]:
        cookie, future = next(self.connection._cookies), self._loop.create_future()

        def taken(answer: _lib.Answer) -> None:
            del self._waiting[cookie], self._sessions[cookie]
            try:
                value = take(answer)
            except Exception as error:
                if not future.cancelled():
                    future.set_exception(error)
                return
            if not future.cancelled():
                future.set_result(value)

        self.connection._check(call(cookie))
        self._waiting[cookie], self._sessions[cookie] = taken, list(sessions)
        self._drain_soon()
        return future

    def _take_one(self, session: Session) -> Callable[[_lib.Answer], Result]:
        def take(answer: _lib.Answer) -> Result:
            if answer.n == 0:
                raise error_of(answer.err, self.connection._text())
            told = Answered(answer.results[0], session.pool, self.connection._text())
            if told.error:
                session._take_refused(told)
                raise told.error
            return session._take(told)

        return take

    async def _one(self, session: Session, call: Callable[[int], int], brings: bool = False) -> Result:
        future = self._submit(call, self._take_one(session), [session])
        try:
            result = await future
        except asyncio.CancelledError:
            if brings and self.connection._handle is not None:
                lib.tern_fetch_cancel(self.connection._p, session.handle, 0)
            raise
        assert isinstance(result, Result)
        return result

    # ---- requests

    async def match(
        self, session: Session, tokens: TokenList, *, step: int = STEP_NONE, keys: Iterable[ExtraKey] = ()
    ) -> Result:
        listed, p = c_tokens(tokens, keys), self.connection._p
        named = session._named(step)
        return await self._one(
            session, lambda cookie: lib.tern_submit_match(p, session.handle, ct.byref(listed.c), named, cookie)
        )

    async def fetch(
        self,
        session: Session,
        peer: str | None,
        *,
        step: int,
        at_least: int = 0,
        depth: int = 0,
        prefetch: bool = False,
    ) -> Result:
        return await self._fetch(session, session._fetch_from(peer, step, at_least, depth, prefetch))

    async def fetch_ticket(self, session: Session, ticket: str, *, step: int) -> Result:
        return await self._fetch(session, session._fetch_by(ticket, step))

    async def fetch_follow(self, session: Session, ticket: str, *, step: int) -> Result:
        return await self._fetch(session, session._fetch_by(ticket, step, follow=True))

    async def _fetch(self, session: Session, fetch: _lib.Fetch) -> Result:
        p = self.connection._p
        return await self._one(
            session,
            lambda cookie: lib.tern_submit_fetch(p, session.handle, ct.byref(fetch), cookie),
            brings=True,
        )

    async def fetch_wait(self, session: Session, above: int) -> Result:
        """Waits as Session.fetch_wait does. A cancelled wait ends when the next one replaces it."""
        p, least = self.connection._p, number("above", above)
        return await self._one(
            session, lambda cookie: lib.tern_submit_fetch_wait(p, session.handle, least, cookie)
        )

    async def recover(self, session: Session) -> Result:
        p = self.connection._p
        return await self._one(
            session, lambda cookie: lib.tern_submit_recover(p, session.handle, cookie), brings=True
        )

    async def store(self, session: Session, depth: int | None = None) -> Stored:
        """Stores as Session.store does, while other requests run. A cancelled store continues."""
        p, wanted = self.connection._p, stored_depth(depth)

        def take(answer: _lib.Answer) -> Stored:
            if answer.err:
                raise error_of(answer.err, self.connection._text())
            return Stored(answer.stored.depth, answer.stored.written)

        stored = await self._submit(lambda cookie: lib.tern_submit_store(p, session.handle, wanted, cookie), take)
        assert isinstance(stored, Stored)
        return stored

    async def wait_published(self, step: int) -> None:
        p, named = self.connection._p, step_number(step)

        def take(answer: _lib.Answer) -> None:
            if answer.err:
                raise error_of(answer.err, f"waiting for step {named}: {self.connection._text()}")

        await self._submit(lambda cookie: lib.tern_submit_wait_published(p, named, cookie), take)

    async def run(self, batch: Batch) -> list[Op]:
        """Runs a batch as Batch.run does: each operation has its own result or error."""
        ops: list[Op] = []
        if not batch.ops:
            return ops

        def take(answer: _lib.Answer) -> list[Op]:
            if answer.err:
                raise error_of(answer.err, self.connection._text())
            for op, told in zip(ops, batch._answers(ops, answer.results, answer.n)):
                op._settle(told)
            return ops

        sessions = [op.session for op in batch.ops]
        answered = self._submit(lambda cookie: lib.tern_batch_submit(batch._b, cookie), take, sessions)
        ops += batch._sent()
        await answered
        return ops

    async def subscribe(
        self, ns: Namespace | None = None, *, start: int = 0, tokens: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Yields the changes of one namespace, or of the whole tenant if `ns` is None.

        Args:
            ns: the namespace, or None.
            start: number of the first change that is wanted; 0: from now on; 1: from the oldest
                that the daemon keeps.
            tokens: yield the tokens and extra keys of each stored chunk, too; the tenant's
                `events_tokens` has to allow it.

        Raises:
            Gone: `start` is from another incarnation of the daemon. Discard your state, start at 1.
            Denied: `tokens` is set, and the tenant's `events_tokens` is false.
            Quota: the limit of subscriptions is reached.
        """
        cookie, p = next(self.connection._cookies), self.connection._p
        queue: asyncio.Queue[Event | Exception] = asyncio.Queue()
        missed = 0

        def take(answer: _lib.Answer) -> None:
            nonlocal missed
            if answer.err:
                queue.put_nowait(error_of(answer.err, self.connection._text()))
                return
            changes = answer.events.contents
            missed += changes.lost
            for i in range(changes.n):
                e = changes.v[i]
                if queue.qsize() >= EVENTS_QUEUED_MAX:
                    missed += 1
                    continue
                queue.put_nowait(
                    Event(
                        e.number,
                        _KINDS.get(e.kind, str(e.kind)),
                        e.depth,
                        e.chain,
                        e.parent_chain,
                        e.pool,
                        e.on_device,
                        e.on_host,
                        missed,
                        tuple(e.tokens[: e.ntokens]),
                        tuple(ExtraKey(k.position, k.hi, k.lo) for k in e.keys[: e.nkeys]),
                        e.ns_hi << 64 | e.ns_lo,
                    )
                )
                missed = 0

        wanted = _lib.Subscription(from_=number("start", start, U64_MAX), tokens=bool(tokens))
        if ns:
            wanted.ns = ct.pointer(ns._c())
        self.connection._check(lib.tern_subscribe(p, ct.byref(wanted), cookie))
        self._waiting[cookie] = take
        self._drain_soon()
        try:
            while True:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self._waiting.pop(cookie, None)
            if self.connection._handle is not None:
                lib.tern_unsubscribe(p, cookie, 0)


__all__ = ["Async", "DaemonLost", "Event"]
