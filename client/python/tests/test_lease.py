"""Sessions that decode over a lease."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Iterator

import pytest
import tern
from daemons import Daemon
from tern import _lib
from tern._lib import lib
from tern.layout import c_tokens
from test_engine import KV, PAGE, POOL, SSM, names, ns, write, wrong

PROMPT, LAST = 20, 120


@pytest.fixture
def engine(daemons: tuple[Daemon, Daemon]) -> Iterator[tern.Engine]:
    with tern.connect(daemons[0].socket) as c:
        yield c.join(next(names))


def started(pool: tern.Pool, lease: tern.Lease, salt: str) -> tern.Session:
    s = pool.session(ns(salt))
    s.match(range(PROMPT))
    s.extend(written=PROMPT, allocated=PROMPT + 5)
    write(pool, s, 0, PROMPT)
    lease.add(s)
    return s


def test_sessions_decode_without_a_request(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.lease(high=48, low=16) as lease:
        lease.wait()
        assert lease.stock("kv") == 48
        running = [started(pool, lease, f"lease-{i}") for i in range(4)]
        for t in range(PROMPT, LAST):
            with engine.step() as step:
                for s in running:
                    lease.extend(s, append=[t], written=t + 1, allocated=min(t + 6, LAST))
                    write(pool, s, t, t + 1)
                    if t % PAGE == PAGE - 1:
                        lease.commit(s, t + 1, step=step + 4)
                try:
                    lease.submit(step=step + 1)
                except tern.Busy:
                    lease.wait()
            for told in lease.told():
                assert told.error is None and not told.failed
        lease.wait()
        for told in lease.told():
            assert told.error is None
        assert [s.committed for s in running] == [LAST // PAGE * PAGE] * 4
        for s in running:
            assert (s.tokens, s.written) == (LAST, LAST) and wrong(pool, s, LAST) == 0
            lease.remove(s, step=tern.STEP_NONE)
        lease.submit()
        for s in running:
            s.extend(allocated=LAST)
            assert (s.tokens, s.written, s.allocated) == (LAST, LAST, LAST) and wrong(pool, s, LAST) == 0
            s.close(step=tern.STEP_NONE)
    with pytest.raises(tern.DaemonLost, match="closed"):
        lease.wait()
    pool.close()


def dispatch(lease: tern.Lease, step: int) -> None:
    """Dispatches as the engine guide describes: no step begins before the answers that it waits
    for."""
    while True:
        try:
            return lease.submit(step=step)
        except tern.Busy:
            lease.wait()
            for told in lease.told():
                assert told.error is None and not told.failed
                told.session.apply(told.result.copies)


def test_a_leased_commit_publishes_the_state_of_its_own_depth(engine: tern.Engine) -> None:
    """T21: the device overwrites the state in every step."""
    pool = engine.open_pool([KV, SSM], bytes=POOL)
    ssm = pool.pages("ssm")
    with pool.lease(high=16) as lease, pool.session(ns("leased-state")) as s:
        lease.wait()
        s.match(range(LAST))
        s.extend(written=PROMPT, allocated=PROMPT + 1)
        lease.add(s)
        for t in range(PROMPT, LAST):
            with engine.step() as step:
                dispatch(lease, step)
                ssm[s.table("ssm")[0]] = t + 1
                lease.extend(s, written=t + 1, allocated=t + 2)
                if (t + 1) % PAGE == 0:
                    lease.commit(s, t + 1, step=step + (4 if t % 32 < 16 else 0))
        dispatch(lease, step + 1)
        lease.remove(s, step=step)
        lease.submit()
        lease.wait()
        s.close(step=step)
    engine.connection.wait_published(step)
    for depth in range(2 * PAGE, LAST + 1, PAGE):
        with pool.session(ns("leased-state")) as s:
            assert s.match(range(depth)).matched == depth
            s.apply(s.extend(allocated=depth + 1).copies)
            assert (ssm[s.table("ssm")[0]] == depth).all()
    pool.close()


def test_pages_that_were_refused_late_leave_the_table(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c, tern.connect(daemons[0].socket) as other:
        name = next(names)
        pool = c.join(name).open_pool([KV], bytes=POOL)
        other.join(name, role="scheduler")
        with pool.lease(high=8) as lease:
            lease.wait()
            s = started(pool, lease, "refused")
            before = s.table("kv")
            r, listed = _lib.Result(), c_tokens([7], (), PROMPT)  # a call that bypasses the lease
            assert lib.tern_extend(other._p, s.handle, ct.byref(listed.c), 0, 0, 0, ct.byref(r)) == 0
            lease.extend(s, append=range(20), written=PROMPT, allocated=PROMPT + 40)
            assert len(s.table("kv")) > len(before)
            lease.submit()
            lease.wait()
            (told,) = lease.told()
            assert told.failed and told.session is s and isinstance(told.error, tern.Conflict)
            assert told.error.numbers == (PROMPT, PROMPT + 1)  # the base of its tokens, and the session's number of tokens
            with pytest.raises(tern.Conflict) as again:
                lease.extend(s, written=PROMPT)
            assert again.value.numbers == told.error.numbers
            assert (s.tokens, s.written, s.allocated) == (PROMPT + 1, PROMPT, PROMPT + 5)
            assert s.table("kv").tolist() == before.tolist()
            lease.remove(s, step=tern.STEP_NONE)
            lease.submit()
            s.extend(append=[8], allocated=PROMPT + 40)
            assert s.table("kv").all() and s.tokens == PROMPT + 2
            s.close(step=tern.STEP_NONE)


def test_what_is_refused_late_is_told(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.lease(high=8) as lease:
        lease.wait()
        s = started(pool, lease, "late")
        with pytest.raises(tern.Conflict, match="is in a lease"):
            s.close(step=tern.STEP_NONE)
        lease.remove(s, step=tern.STEP_NONE)
        lease.submit()
        s.close(step=tern.STEP_NONE)
        lease.add(s)  # the daemon no longer has this session
        lease.extend(s, append=range(PROMPT), written=PROMPT, allocated=PROMPT + 40)
        lease.submit()
        lease.wait()
        (told,) = lease.told()
        assert told.failed and told.session is s and isinstance(told.error, tern.Gone)
        with pytest.raises(tern.Gone):
            lease.extend(s, append=[PROMPT], written=PROMPT + 1)
        with pytest.raises(tern.Conflict):
            lease.close()
        lease.remove(s, step=tern.STEP_NONE)


def test_answers_are_taken_where_nobody_looks_at_them(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.lease(high=8) as lease:
        lease.wait()
        s = started(pool, lease, "unread")
        lease.commit(s, PAGE, step=tern.STEP_NONE)
        lease.submit()
        lease.wait()
        lease.told()
        assert s.committed == PAGE
        lease.remove(s, step=tern.STEP_NONE)
        lease.submit()
        s.close(step=tern.STEP_NONE)
    pool.close()


def test_an_exception_comes_out_of_blocks_in_a_lease(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pytest.raises(ValueError, match="mine"):
        with pool.lease(high=8) as lease, pool.session(ns("inner")) as s:
            lease.wait()
            outer = started(pool, lease, "outer")
            s.match([1, 2, 3])
            lease.add(s)
            lease.extend(s, written=3, allocated=9)
            with engine.step() as step:
                lease.submit(step=step)
            raise ValueError("mine")
    assert not s.open and s._last_step == step
    outer.extend(allocated=PROMPT + 6)  # no longer in a lease
    outer.close(step=step)
    pool.close()  # no page is leased: else Conflict


def test_a_lease_that_cannot_be(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV, SSM], bytes=POOL)
    with pytest.raises(tern.Invalid, match="low <= high"):
        pool.lease(high=4, low=5)
    with pool.lease(high={"kv": 4, "ssm": 0}) as lease:
        lease.wait()
        with pool.session(ns("none")) as s, pytest.raises(tern.Gone):
            lease.extend(s, allocated=4)
    with pool.lease(high=4) as lease:  # pages of `ssm` are not leased
        assert lease.stock("ssm") == 0
