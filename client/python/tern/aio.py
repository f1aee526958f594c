"""The same requests with asyncio: many at once on one connection, from one event loop.

A request that is cancelled is still answered by the daemon, and its answer still counts for its session;
a fetch or a recover is cancelled there, too. Synchronous calls may be mixed in.
"""

from __future__ import annotations

import asyncio
import ctypes as ct
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass

from . import _lib
from ._lib import STEP_NONE, lib
from .connection import Connection
from .errors import DaemonLost, error_of
from .layout import ExtraKey, Namespace, TokenList, U64_MAX, c_tokens, encoded, encoded_or_none, number, step_number
from .session import Answered, Batch, Op, Result, Session, Stored, stored_depth

_OK, _BUSY = 0, 8
EVENTS_QUEUED_MAX = 65536  # changes that wait for whoever iterates over a subscription; more are lost


@dataclass(frozen=True)
class Event:
    """A change of one chunk of the prefix tree that ends at `depth`."""

    number: int
    kind: str  # "stored", "tier" or "removed"
    depth: int
    chain: int
    parent_chain: int
    pool: int
    on_device: bool
    on_host: bool
    lost: int  # changes that were missed just before this one
    # Of a stored chunk, where the subscription is for tokens and the chunk was in the tree yet; else empty.
    tokens: tuple[int, ...] = ()
    keys: tuple[ExtraKey, ...] = ()
    ns: int = 0  # a hash of the namespace


PAUSE_S = 0.001  # until a connection that another thread uses is looked at again

_KINDS = {1: "stored", 2: "tier", 3: "removed"}


def chains(ns: Namespace, tokens: TokenList, align_tokens: int, keys: Iterable[ExtraKey] = ()) -> list[int]:
    """Of a token list's whole chunks, the shallowest first, as Event.chain has them. align_tokens: length of a chunk."""
    listed, length = c_tokens(tokens, keys), number("align_tokens", align_tokens)
    found = (ct.c_uint64 * (len(listed.ids) // length if length else 0))()
    n = lib.tern_chains(ct.byref(ns._c()), ct.byref(listed.c), length, found, len(found))
    return list(found[:n])


class Async:
    """Requests of one connection. Make one of it, inside the event loop that will use it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._fd = int(lib.tern_fd(connection._p))
        self._waiting: dict[int, Callable[[_lib.Answer], None]] = {}
        self._sessions: dict[int, list[Session]] = {}  # whose request that is
        self._soon = False
        self._loop.add_reader(self._fd, self._drain)
        connection._async = self
        connection._holders.add(self)

    def _drop(self) -> None:
        """The connection is closed, and its descriptor with it."""
        if not self._loop.is_closed():
            self.close()

    def close(self) -> None:
        """Stops listening. What is under way is answered to nobody."""
        self.connection._async = None
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)

    # ---- the table of what is under way

    def _drain_soon(self) -> None:
        """A synchronous call takes in the answers that come before its own, and nothing can be read then."""
        if not self._soon and not self._loop.is_closed():
            self._soon = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        guard = self.connection._guard
        if not guard.enter():  # another thread is in a call, which takes in what has come
            self._loop.call_later(PAUSE_S, self._drain)
            return
        try:
            self._drain_now()
        finally:
            guard.leave()

    def _drain_now(self) -> None:
        self._soon = False
        handle, answer = self.connection._handle, _lib.Answer()
        if handle is None:
            return
        while (err := lib.tern_poll(handle.pointer, ct.byref(answer))) == _OK:
            take = self._waiting.get(answer.cookie)
            if take:
                take(answer)
        if err != _BUSY:
            self._loop.remove_reader(self._fd)
        if lib.tern_wants_write(handle.pointer):
            self._loop.add_writer(self._fd, self._drain)
        else:
            self._loop.remove_writer(self._fd)

    def _has(self, session: Session) -> bool:
        """Is a request of the session under way? (A turn has the tables of its session.)"""
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
        call = lib.tern_submit_prefetch if prefetch else lib.tern_submit_fetch
        p, name = self.connection._p, encoded_or_none("peer", peer)
        least, most, named = number("at_least", at_least), number("depth", depth), session._named(step)
        return await self._one(
            session,
            lambda cookie: call(p, session.handle, name, least, most, named, cookie),
            brings=True,
        )

    async def fetch_ticket(self, session: Session, ticket: str, *, step: int) -> Result:
        p, text, named = self.connection._p, encoded("ticket", ticket), session._named(step)
        return await self._one(
            session,
            lambda cookie: lib.tern_submit_fetch_ticket(p, session.handle, text, named, cookie),
            brings=True,
        )

    async def fetch_follow(self, session: Session, ticket: str, *, step: int) -> Result:
        p, text, named = self.connection._p, encoded("ticket", ticket), session._named(step)
        return await self._one(
            session,
            lambda cookie: lib.tern_submit_fetch_follow(p, session.handle, text, named, cookie),
            brings=True,
        )

    async def fetch_wait(self, session: Session, above: int) -> Result:
        """Session.fetch_wait. One that is cancelled ends nothing: the next one takes its place."""
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
        """Session.store, and other requests go on meanwhile. A store that is cancelled goes on as well."""
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
        """Batch.run: the errors of its operations are in them."""
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
        """Changes of a namespace, or of the whole tenant, from number `start` on; 0: from now on; 1: from the oldest
        that is kept. Gone: the number is of another life of the daemon, so forget what was told, and start at 1.
        tokens: with what the stored chunks are of, which the tenant's `events_tokens` has to allow."""
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

        c_ns = ct.byref(ns._c()) if ns else None
        call = lib.tern_subscribe_tokens if tokens else lib.tern_subscribe
        self.connection._check(call(p, c_ns, number("start", start, U64_MAX), cookie))
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
