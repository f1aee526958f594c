"""Many requests at once with asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tern
from daemons import Daemon
from tern._lib import lib
from test_engine import KV, PAGE, POOL, names, ns

TRIES = 50  # attempts until a cancel finds its fetch half way


def test_slow_subscriber_is_told_what_it_lost(daemons: tuple[Daemon, Daemon], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tern.aio, "EVENTS_QUEUED_MAX", 2)

    async def run() -> None:
        with tern.connect(daemons[0].socket) as c:
            engine = c.join(next(names))
            session = engine.open_pool([KV], bytes=POOL).session(ns("slow"))
            session.match(range(6 * PAGE))
            session.extend(written=6 * PAGE, allocated=6 * PAGE)
            aio = tern.Async(c)
            slow, quick = aio.subscribe(ns("slow")), aio.subscribe(ns("slow"))
            waiting = [asyncio.ensure_future(anext(changes)) for changes in (slow, quick)]
            await asyncio.sleep(0)
            for i in range(1, 7):
                session.commit(i * PAGE, step=tern.STEP_NONE)
                if i == 6:
                    got = [await anext(slow), await anext(slow)]
                    assert [(e.depth, e.lost) for e in got] == [(2 * PAGE, 0), (3 * PAGE, 0)]
                assert (await asyncio.wait_for(waiting[1], 10)).depth == i * PAGE  # so the other one has its answer too
                waiting[1] = asyncio.ensure_future(anext(quick))
                await asyncio.sleep(0)
            assert (await waiting[0]).depth == PAGE
            last = await asyncio.wait_for(anext(slow), 10)
            assert (last.depth, last.lost) == (6 * PAGE, 2)
            waiting[1].cancel()
            aio.close()

    asyncio.run(run())


def test_many_requests_from_one_loop(daemons: tuple[Daemon, Daemon]) -> None:
    async def run() -> None:
        with tern.connect(daemons[0].socket) as c:
            engine = c.join(next(names))
            pool = engine.open_pool([KV], bytes=POOL)
            aio = tern.Async(c)
            changes = aio.subscribe(ns("aio"), tokens=True)
            change = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            sessions = [pool.session(ns("aio")) for _ in range(8)]
            results = await asyncio.gather(*(aio.match(s, range(PAGE * i)) for i, s in enumerate(sessions)))
            assert [r.tokens for r in results] == [PAGE * i for i in range(8)]
            batch = engine.batch()
            for i, s in enumerate(sessions):
                batch.extend(s, written=PAGE * i, allocated=PAGE * i)
            waited = asyncio.ensure_future(aio.wait_published(1))
            assert all(op.error is None for op in await aio.run(batch))
            assert not waited.done()
            sessions[2].commit(2 * PAGE, step=1)
            with engine.step():
                pass
            await asyncio.wait_for(waited, 10)
            stored = await asyncio.wait_for(change, 10)
            assert (stored.kind, stored.depth, stored.lost) == ("stored", PAGE, 0)
            assert (stored.tokens, stored.keys) == (tuple(range(PAGE)), ())
            await changes.aclose()
            with pytest.raises(tern.Quota, match="tern_extend can never fit"):
                batch.extend(sessions[0], allocated=1000 * PAGE)
                op = (await aio.run(batch))[0]
                assert op.error
                raise op.error
            with pytest.raises(tern.Invalid, match="no such peer"):
                s = pool.session(ns("aio"))
                await aio.match(s, range(40))
                await aio.fetch(s, "nobody", step=tern.STEP_NONE)
            aio.close()

    asyncio.run(run())


def extend_when_it_may(s: tern.Session, allocated: int) -> None:
    while True:
        try:
            s.extend(allocated=allocated)
            return
        except tern.Busy:
            pass


# A transfer takes up to 256 pages at a time, so the first of these pages arrive before the rest.
LONG = tern.Group("kv", page_tokens=PAGE, shape=(PAGE, 64), axes=("token", "dim"))
CHUNKS = 1536
PROMPT = range(CHUNKS * PAGE)
LONG_POOL = (CHUNKS + 64) * LONG.page_bytes
WRITTEN = np.arange(len(PROMPT), dtype=np.float32).reshape(CHUNKS, PAGE, 1)  # token t has the value t


def came(pool: tern.Pool) -> bool:
    return pool.peek(ns("cancelled"), PROMPT).resumable > 0


def check_what_came(pool: tern.Pool, s: tern.Session) -> None:
    committed = s.committed
    assert s.written == s.allocated == committed and s.tokens == len(PROMPT)
    assert (pool.pages("kv")[s.table("kv")] == WRITTEN[: committed // PAGE]).all()
    deadline = time.monotonic() + 10
    while True:
        try:
            assert s.extend(allocated=len(PROMPT)).committed == committed
            return
        except tern.Exhausted:  # no session gets pages that the transfer may still write
            assert time.monotonic() < deadline
            time.sleep(0.001)


def long_pool(engine: tern.Engine) -> tern.Pool:
    """Opens a pool as large as the memory that the pool before it returns."""
    while True:
        try:
            return engine.open_pool([LONG], bytes=LONG_POOL)
        except tern.Busy:  # the older pool is being cleared
            time.sleep(0.001)


@pytest.fixture
def published(daemons: tuple[Daemon, Daemon]) -> Iterator[str]:
    """Publishes the namespace `cancelled` at host-a. Yields the socket of the daemon that fetches
    it."""
    with tern.connect(daemons[0].socket) as c:
        engine = c.join(next(names))
        pool = long_pool(engine)
        with pool.session(ns("cancelled")) as s:
            s.match(PROMPT)
            s.extend(written=len(PROMPT), allocated=len(PROMPT))
            with engine.step() as step:
                pool.pages("kv")[s.table("kv")] = WRITTEN
                s.commit(len(PROMPT), step=step)
            c.wait_published(step)
            yield daemons[1].socket
        pool.close()


def test_a_cancelled_fetch_keeps_what_came(published: str) -> None:
    async def cancelled() -> bool:
        with tern.connect(published) as c:
            pool = long_pool(c.join(next(names)))
            aio = tern.Async(c)
            with pool.session(ns("cancelled")) as s:
                s.match(PROMPT)
                fetch = asyncio.ensure_future(aio.fetch(s, "host-a", step=tern.STEP_NONE))
                await asyncio.sleep(0)
                while not came(pool):
                    pass
                s.fetch_cancel()
                try:
                    await asyncio.wait_for(fetch, 10)
                    gone = False
                except tern.Gone:
                    gone = 0 < s.committed < len(PROMPT)
                    check_what_came(pool, s)
            aio.close()
            pool.close()
            return gone

    assert any(asyncio.run(cancelled()) for _ in range(TRIES))


def test_a_cancelled_fetch_that_was_waited_for_keeps_what_came(published: str) -> None:
    def cancelled() -> bool:
        with tern.connect(published) as c, tern.connect(published) as other:
            name = next(names)
            pool = long_pool(c.join(name))
            helper = other.join(name, role="scheduler").map_pool(pool.handle, [LONG], align_tokens=PAGE)
            with pool.session(ns("cancelled")) as s, ThreadPoolExecutor(1) as thread:
                s.match(PROMPT)
                fetch = thread.submit(s.fetch, "host-a", step=tern.STEP_NONE)
                while not came(helper):
                    pass
                assert lib.tern_fetch_cancel(other._p, s.handle, 0) == 0
                try:
                    fetch.result(10)
                    gone = False
                except tern.Gone:
                    gone = 0 < s.committed < len(PROMPT)
                    check_what_came(pool, s)
            pool.close()
            return gone

    assert any(cancelled() for _ in range(TRIES))


def test_the_end_of_a_fetch_is_newer_than_what_was_asked_before(
    published: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetch ends between the answer to a fetch_wait and the next poll."""

    async def ended_between() -> bool:
        with tern.connect(published) as c:
            pool = long_pool(c.join(next(names)))
            aio = tern.Async(c)
            with pool.session(ns("cancelled")) as s:
                s.match(PROMPT)
                fetch = asyncio.ensure_future(aio.fetch(s, "host-a", step=tern.STEP_NONE))
                await asyncio.sleep(0)

                def catch_up() -> None:
                    while aio._has(s):
                        aio._drain()

                monkeypatch.setattr(c, "_catch_up", catch_up)
                told = s.fetch_wait(0)
                monkeypatch.undo()
                await asyncio.wait_for(fetch, 10)
                assert s.written == s.committed == len(PROMPT) and s._arriving == 0
                assert (pool.pages("kv")[s.table("kv")] == WRITTEN).all()
            aio.close()
            pool.close()
            return told.arriving > 0

    assert any(asyncio.run(ended_between()) for _ in range(TRIES))


def test_a_fetch_is_cancelled_by_its_session(daemons: tuple[Daemon, Daemon]) -> None:
    async def run() -> None:
        with tern.connect(daemons[1].socket) as c:
            pool = c.join(next(names)).open_pool([KV], bytes=POOL)
            aio = tern.Async(c)
            with pool.session(ns("nobody has it")) as s:
                s.match(range(2 * PAGE))
                s.fetch_cancel()  # no fetch is under way: it has no effect
                waits = asyncio.ensure_future(aio.fetch(s, "host-a", at_least=PAGE, step=tern.STEP_NONE))
                await asyncio.sleep(0.05)
                with pytest.raises(tern.Busy):
                    s.extend(allocated=PAGE)
                s.fetch_cancel()
                extend_when_it_may(s, PAGE)  # the fetch was answered before, and is awaited below
                with pytest.raises(tern.Gone):
                    await asyncio.wait_for(waits, 10)
                assert s.allocated == PAGE and s.table("kv").all()
                waits = asyncio.ensure_future(aio.fetch(s, "host-a", at_least=PAGE, step=tern.STEP_NONE))
                await asyncio.sleep(0.05)
                s.fetch_cancel()
                batch, op = pool.engine.batch(), None
                while op is None or isinstance(op.error, tern.Busy):
                    batch.extend(s, allocated=2 * PAGE)
                    op = batch.run()[0]
                with pytest.raises(tern.Gone):
                    await asyncio.wait_for(waits, 10)
                assert s.allocated == 2 * PAGE and s.table("kv").all()
            with pytest.raises(tern.TimedOut, match="step 7"):
                c.wait_published(7, deadline_ms=20)
            replaced = asyncio.ensure_future(aio.wait_published(8))
            await asyncio.sleep(0)
            later = asyncio.ensure_future(aio.wait_published(9))
            with pytest.raises(tern.Conflict, match="step 8: a later wait"):
                await asyncio.wait_for(replaced, 10)
            later.cancel()
            aio.close()
            pool.close()

    asyncio.run(run())


def test_turns_keep_tasks_apart(daemons: tuple[Daemon, Daemon]) -> None:
    async def run() -> None:
        with tern.connect(daemons[0].socket) as c:
            pool = c.join(next(names)).open_pool([KV], bytes=POOL)
            aio = tern.Async(c)
            s = pool.session(ns("aio-turns"))

            async def client(tokens: int) -> bool:
                try:
                    with s.turn() as turn:
                        await asyncio.sleep(0)
                        return (await aio.match(turn, range(tokens))).tokens == tokens
                except tern.Busy:
                    return False

            assert list(await asyncio.gather(client(20), client(30), client(40))) == [True, False, False]
            assert await client(50) and s.tokens == 50
            with s.turn(), pytest.raises(tern.Busy):
                await aio.match(s, range(60))
            aio.close()
            s.close(step=tern.STEP_NONE)
            pool.close()

    asyncio.run(run())


def test_a_daemon_that_is_lost_ends_what_waits(daemons: tuple[Daemon, Daemon]) -> None:
    async def run() -> None:
        with tern.connect(daemons[0].socket) as c:
            pool = c.join(next(names)).open_pool([KV], bytes=POOL)
            aio = tern.Async(c)
            waited = asyncio.ensure_future(aio.wait_published(5))
            await asyncio.sleep(0.05)
            waited.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waited
            c.ping()  # the connection stays usable
            aio.close()
            pool.close()

    asyncio.run(run())


def test_an_answer_to_an_async_that_was_closed_is_nobodys(daemons: tuple[Daemon, Daemon]) -> None:
    async def run() -> None:
        with tern.connect(daemons[1].socket) as c:
            pool = c.join(next(names)).open_pool([KV], bytes=POOL)
            closed = tern.Async(c)
            with pool.session(ns("nobody has it")) as before, pool.session(ns("nobody has it")) as s:
                for one in before, s:
                    one.match(range(2 * PAGE))
                left = asyncio.ensure_future(closed.fetch(before, "host-a", at_least=PAGE, step=tern.STEP_NONE))
                await asyncio.sleep(0)
                closed.close()
                aio = tern.Async(c)
                waits = asyncio.ensure_future(aio.fetch(s, "host-a", at_least=PAGE, step=tern.STEP_NONE))
                await asyncio.sleep(0)
                before.fetch_cancel()
                await asyncio.sleep(0.05)
                assert not waits.done()
                s.fetch_cancel()
                with pytest.raises(tern.Gone):
                    await asyncio.wait_for(waits, 10)
            aio.close()
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left

    asyncio.run(run())


def test_a_batch_that_was_not_sent_is_as_it_was(daemons: tuple[Daemon, Daemon]) -> None:
    async def run() -> None:
        with tern.connect(daemons[0].socket) as c:
            engine = c.join(next(names))
            pool, aio = engine.open_pool([KV], bytes=POOL), tern.Async(c)
            with pool.session(ns("unsent")) as first, pool.session(ns("unsent")) as other:
                batch = engine.batch()
                for s in first, other:
                    s.match(range(3 * PAGE))
                batch.extend(first, allocated=PAGE)
                with pool.lease(high=4) as lease:
                    lease.add(first)
                    with pytest.raises(tern.Conflict, match="in a lease"):
                        await aio.run(batch)
                    lease.remove(first, step=tern.STEP_NONE)
                    lease.submit()
                    lease.wait()
                assert len(batch) == 1
                batch.extend(other, allocated=3 * PAGE)
                ops = await aio.run(batch)
                assert [op.session for op in ops] == [first, other] and len(batch) == 0
                assert (first.allocated, other.allocated) == (PAGE, 3 * PAGE)
                assert not set(first.table("kv")) & set(other.table("kv"))
            aio.close()

    asyncio.run(run())
