"""Sessions that are handed over at one daemon and fetched at another."""

from __future__ import annotations

import asyncio
import time

import pytest
import tern
from daemons import Daemon
from test_engine import KV, PAGE, POOL, ns, write, wrong

LENGTH = 2 * PAGE + 5
TOKENS = range(7000, 7000 + LENGTH)


def hand_over(d: Daemon, salt: str, blob: bytes = b"", length: int = LENGTH) -> tern.Ticket:
    with tern.connect(d.socket) as c:
        engine = c.join(f"prefill-{salt}")
        pool = engine.open_pool([KV], bytes=POOL)
        with pool.session(ns(salt)) as s:
            cached = s.match(TOKENS[:length]).written
            s.extend(written=length, allocated=length)
            with engine.step() as step:
                write(pool, s, cached, length)
                s.commit(2 * PAGE, step=step)
                ticket = s.hand_over(step=step, blob=blob, stands_ms=30000)
            assert not s.open and (s.committed, s.written) == (0, 0)
        c.wait_published(step)
        return ticket


def test_a_ticket_brings_all_to_the_last_token(daemons: tuple[Daemon, Daemon]) -> None:
    tickets = [hand_over(daemons[0], f"ticket-{i}", bytes([i]) * 9) for i in range(2)]
    assert tickets[0].stands_ms == 30000 and len(tickets[0].text) < 256
    with tern.connect(daemons[1].socket) as c:
        engine = c.join("decode")
        pool = engine.open_pool([KV], bytes=POOL)
        with pool.session(ns("ticket-0")) as s:
            s.match(TOKENS)
            assert s.fetch_ticket(tickets[0].text, step=tern.STEP_NONE).blob == bytes(9)
            assert (s.committed, s.written, s.tokens) == (2 * PAGE, LENGTH, LENGTH)
            assert wrong(pool, s, LENGTH) == 0
        with pool.session(ns("ticket-1")) as s:
            s.match(TOKENS[:-1])
            with pytest.raises(tern.Invalid) as why:
                s.fetch_ticket(tickets[1].text, step=tern.STEP_NONE)
            assert (why.value.handed, why.value.align) == (LENGTH, 0)
        with pool.session(ns("ticket-0")) as s:
            s.match(TOKENS)
            with pytest.raises(tern.Gone):
                s.fetch_ticket(tickets[0].text, step=tern.STEP_NONE)

        async def run(s: tern.Session) -> tern.Result:
            return await tern.Async(c).fetch_ticket(s, tickets[1].text, step=tern.STEP_NONE)

        with pool.session(ns("ticket-1")) as s:
            s.match(TOKENS)
            assert asyncio.run(run(s)).blob == b"\1" * 9 and wrong(pool, s, LENGTH) == 0


def test_a_ticket_for_who_has_all_of_it_brings_the_blob(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[1].socket) as c:
        pool = c.join("decode-again").open_pool([KV], bytes=POOL)
        for turn in (b"first", b"again"):
            ticket = hand_over(daemons[0], "whole", turn, 2 * PAGE)
            with pool.session(ns("whole")) as s:
                cached = s.match(TOKENS[: 2 * PAGE]).written
                assert cached == (0 if turn == b"first" else 2 * PAGE)
                r = s.fetch_ticket(ticket.text, step=tern.STEP_NONE)
                assert (r.blob, r.fetched_kib > 0) == (turn, turn == b"first")
                assert s.written == 2 * PAGE and wrong(pool, s, 2 * PAGE) == 0
            with pool.session(ns("whole")) as s:
                s.match(TOKENS[: 2 * PAGE])
                with pytest.raises(tern.Gone):
                    s.fetch_ticket(ticket.text, step=tern.STEP_NONE)


def test_a_ticket_is_renewed_and_dropped_where_it_was_given(daemons: tuple[Daemon, Daemon]) -> None:
    ticket = hand_over(daemons[0], "dropped")
    with tern.connect(daemons[0].socket) as c:
        c.join("keeper")
        assert c.ticket_renew(ticket.text, stands_ms=5000) == 5000
        c.ticket_drop(ticket.text)
        with pytest.raises(tern.Gone):
            c.ticket_renew(ticket.text)
        with pytest.raises(tern.Invalid, match="not a ticket"):
            c.ticket_drop("prefill-0")


def fetched_here(s: tern.Session, ticket: str) -> tern.Result:
    """Fetches at the daemon that issued the ticket, which is BUSY while the tail's checksums are
    computed."""
    until = time.monotonic() + 30
    while True:
        try:
            return s.fetch_ticket(ticket, step=tern.STEP_NONE)
        except tern.Busy as busy:
            assert busy.retry_ms > 0 and time.monotonic() < until
            time.sleep(busy.retry_ms / 1000)


def test_a_ticket_is_fetched_where_it_was_given(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c, tern.connect(daemons[0].socket) as other:
        pool = c.join("prefill-here").open_pool([KV], bytes=POOL)
        there = other.join("decode-here").map_pool(pool.handle, [KV], align_tokens=PAGE)
        with pool.session(ns("here")) as s:
            s.match(TOKENS)
            s.extend(written=LENGTH, allocated=LENGTH)
            with pool.engine.step() as step:
                write(pool, s, 0, LENGTH)
                s.commit(2 * PAGE, step=step)
                ticket = s.hand_over(step=step, blob=b"here")
        c.wait_published(step)
        with there.session(ns("here")) as d:
            d.match(TOKENS)
            assert fetched_here(d, ticket.text).blob == b"here"
            assert (d.committed, d.written, d.tokens) == (2 * PAGE, LENGTH, LENGTH)
            assert wrong(there, d, LENGTH) == 0


def test_a_session_is_followed_while_it_computes(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c, tern.connect(daemons[1].socket) as other:
        pool = c.join("prefill-followed").open_pool([KV], bytes=POOL)
        there = other.join("decode-follows").open_pool([KV], bytes=POOL)
        s, d = pool.session(ns("followed")), there.session(ns("followed"))
        s.match(TOKENS)
        early = s.ticket_open(stands_ms=30000)
        assert s.ticket_open().text == early.text
        d.match(TOKENS)

        def compute(to: int) -> None:
            begin = s.written
            s.extend(written=to, allocated=to)
            with pool.engine.step() as step:
                write(pool, s, begin, to)
                if to % PAGE == 0:
                    s.commit(to, step=step)
                else:
                    assert s.hand_over(step=step, blob=b"first").text != ""

        async def run() -> tern.Result:
            a = tern.Async(other)
            whole = asyncio.create_task(a.fetch_follow(d, early.text, step=tern.STEP_NONE))
            await asyncio.sleep(0)
            assert d.fetch_pages().arriving == LENGTH
            coming = d.table("kv").copy()
            assert len(coming) == -(-LENGTH // PAGE) and coming.all()
            for to in (PAGE, 2 * PAGE):
                told = asyncio.create_task(a.fetch_wait(d, to - PAGE))
                await asyncio.sleep(0)
                compute(to)
                if to == PAGE:
                    r = await told
                    assert (r.committed, r.arriving) == (PAGE, LENGTH)
                    assert wrong(there, d, PAGE) == 0 and not whole.done()
            compute(LENGTH)
            await told
            return await whole

        assert asyncio.run(run()).blob == b"first"
        assert (d.committed, d.written) == (2 * PAGE, LENGTH)
        assert wrong(there, d, LENGTH) == 0
        assert d.fetch_wait(0).arriving == 0
        d.close(step=tern.STEP_NONE)
