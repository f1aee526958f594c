"""Engines, pools, sessions, batches and errors against a real daemon."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tern
from daemons import Daemon

PAGE = 16
KV = tern.Group("kv", page_tokens=PAGE, shape=(2, PAGE, 8), axes=("layer", "token", "dim"))
SSM = tern.Group("ssm", page_tokens=PAGE, shape=(64,), family="recurrent")
POOL = 256 << 10

names = (f"engine-{i}" for i in itertools.count())


@pytest.fixture
def engine(daemons: tuple[Daemon, Daemon]) -> Iterator[tern.Engine]:
    with tern.connect(daemons[0].socket) as c:
        yield c.join(next(names))


def ns(salt: str) -> tern.Namespace:
    return tern.Namespace(model="m", salt=salt)


def write(pool: tern.Pool, s: tern.Session, first: int, last: int) -> None:
    """Writes KV in which token t has the value t in all of its elements."""
    kv, table = pool.pages("kv"), s.table("kv")
    for t in range(first, last):
        kv[table[t // PAGE], :, t % PAGE, :] = t


def wrong(pool: tern.Pool, s: tern.Session, last: int) -> int:
    kv, table = pool.pages("kv"), s.table("kv")
    return sum(int((kv[table[t // PAGE], :, t % PAGE, :] != t).sum()) for t in range(last))


def test_a_pool_declares_larger_chunks(engine: tern.Engine) -> None:
    assert engine.open_pool([KV], bytes=POOL, align_tokens=3 * PAGE).align_tokens == 3 * PAGE
    with pytest.raises(tern.Invalid, match="align_tokens"):
        engine.open_pool([KV], bytes=POOL, align_tokens=PAGE + 1)


def test_a_prefix_is_shared_by_the_page(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    assert pool.align_tokens == PAGE and pool.pages("kv").shape[1:] == KV.shape
    with pool.session(ns("shared")) as s:
        assert s.match(range(40)).matched == 0
        s.extend(written=40, allocated=44)
        assert len(s.table("kv")) == 3 and s.allocated == 44
        with engine.step() as step:
            write(pool, s, 0, 40)
            s.commit(32, step=step)
        engine.connection.wait_published(step)
        first = list(s.table("kv")[:2])
        s.rewind(40, step=step)
    assert not s.open
    assert pool.peek(ns("shared"), range(40)).resumable == 32
    with pool.session(ns("shared")) as other:
        assert other.match(range(40)).matched == 32
        assert list(other.table("kv")) == first
        assert wrong(pool, other, 32) == 0
    pool.close()


def test_recurrent_state_is_copied_before_it_goes_on(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV, SSM], bytes=POOL)
    with pool.session(ns("ssm")) as s:
        s.match(range(20))
        s.extend(written=16, allocated=20)
        with engine.step() as step:
            pool.pages("ssm")[s.table("ssm")[0]] = 16.0
            r = s.commit(16, step=step)
        s.apply(r.copies)
        assert len(r.copies) == 1 and r.copies[0].target == s.table("ssm")[0]
        assert (pool.pages("ssm")[s.table("ssm")[0]] == 16.0).all()
        s.extend(written=20)
        with pytest.raises(tern.Invalid, match="no STATE to resume from that length: a RECURRENT group has only the STATE of the written and"):
            s.rewind(18, step=step)
        batch = engine.batch()
        for length in (18, 19):
            batch.rewind(s, length, step=step)
        assert all("no STATE to resume from that length" in str(op.error) for op in batch.run())
        s.rewind(20, step=step)
        s.finish(18, step=step)  # returns to the committed length, whose state the tree has
        assert (s.committed, s.written, s.tokens) == (16, 16, 18)
    pool.close()


def in_a_child(call: Callable[[], object]) -> str:
    """Returns the error that the call raises in a forked child."""
    here, there = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks beside threads
        pid = os.fork()
    if pid == 0:
        try:
            call()
            told = "nothing"
        except tern.TernError as error:
            told = f"{type(error).__name__}: {error}"
        os.write(there, told.encode())
        os._exit(0)
    os.close(there)
    assert os.waitpid(pid, 0)[1] == 0
    with os.fdopen(here) as told_by_child:
        return told_by_child.read()


def test_fork_leaves_the_connection_to_the_parent(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c:
        pool = c.join(next(names)).open_pool([KV], bytes=POOL)
        with pool.session(ns("fork")) as s:
            s.match(range(PAGE))
            s.extend(written=PAGE, allocated=PAGE)
            calls: list[Callable[[], object]] = [
                lambda: s.abort(step=tern.STEP_NONE),
                lambda: pool.peek(ns("fork"), range(PAGE)),
                lambda: s.close(step=tern.STEP_NONE),
                lambda: pool.done_step(1),
                c.ping,
                c.stats,
            ]
            for call in calls:
                assert "belongs to the parent of this forked process" in in_a_child(call)
            assert in_a_child(c.close) == "nothing"
            assert in_a_child(lambda: tern.connect(daemons[0].socket).ping()) == "nothing"
            s.extend(append=[7], written=PAGE + 1, allocated=PAGE + 1)  # no part of the refused call took effect
        pool.close()


def test_threads_may_hand_a_connection_on_and_not_share_it(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c:
        pool = c.join(next(names)).open_pool([KV], bytes=POOL)
        with pool.session(ns("threads")) as s:
            s.match(range(2 * PAGE))
            s.extend(written=2 * PAGE, allocated=2 * PAGE)
            s.commit(2 * PAGE, step=tern.STEP_NONE)
        told: set[str] = set()
        right: list[int] = []

        def use(chunks: int) -> None:
            for _ in range(300):
                try:
                    right.append(pool.peek(ns("threads"), range(chunks * PAGE)).resumable == chunks * PAGE)
                except tern.TernError as error:
                    told.add(f"{type(error).__name__}: {error}")

        def run(at_once: bool) -> None:
            threads = [threading.Thread(target=use, args=(i % 2 + 1,)) for i in range(4)]
            for thread in threads:
                thread.start()
                if not at_once:
                    thread.join()
            for thread in threads:
                thread.join()

        run(at_once=False)
        assert not told and len(right) == 1200
        run(at_once=True)
        assert len(told) == 1 and all(right)
        assert "Conflict: another thread is in a call on this connection" in told.pop()
        c.ping()  # the connection is alive
        pool.close()


def test_pages_outlive_the_connection(daemons: tuple[Daemon, Daemon]) -> None:
    c = tern.connect(daemons[0].socket)
    pool = c.join(next(names)).open_pool([KV], bytes=POOL)
    kv = pool.pages("kv")
    page, shared = kv[3], np.from_dlpack(kv)
    page[:] = 7
    assert shared[3, 0, 0, 0] == 7  # the same memory
    c.close()
    del c, pool, kv
    gc.collect()
    assert (page == 7).all()
    page[:] = 8  # no segmentation fault: an array of it keeps the mapping alive
    del shared
    gc.collect()
    assert (page == 8).all()


def mapped_at(address: int) -> bool:
    ranges = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(first, 16) <= address < int(end, 16) for first, end in ranges)


@pytest.fixture
def no_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_gc")
def test_close_unmaps_at_once(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c:
        engine = c.join(next(names))
        pool, batch = engine.open_pool([KV], bytes=POOL), engine.batch()
        session = pool.session(ns("unmapped"))
        batch.abort(session, step=tern.STEP_NONE)
        address = pool.pages("kv").ctypes.data
        assert mapped_at(address)
    assert not mapped_at(address)  # although pool, engine, batch and session still exist
    for call in (lambda: pool.pages("kv"), batch.run, lambda: batch.abort(session, step=tern.STEP_NONE)):
        with pytest.raises(tern.DaemonLost, match="connect again"):
            call()
    c.close()  # a second close has no effect
    batch.clear()


@pytest.mark.usefixtures("no_gc")
def test_close_waits_for_the_last_array(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c:
        pool = c.join(next(names)).open_pool([KV], bytes=POOL)
        page = pool.pages("kv")[3]
    address = page.ctypes.data
    page[:] = 7
    assert mapped_at(address) and (page == 7).all()
    del page
    assert not mapped_at(address)


def test_an_answer_about_a_turn_leaves_the_session(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.session(ns("turns")) as s:
        with s.turn() as turn:
            turn.match(range(40))
            turn.extend(written=40, allocated=40)
            with pytest.raises(tern.Busy):
                s.recover()  # only the turn may ask for it
            assert s.table("kv").all() and (s.written, s.allocated, s.tokens) == (40, 40, 40)
        with pytest.raises(tern.Gone):
            turn.extend(allocated=64)
        batch = engine.batch()
        batch.extend(turn, allocated=64)
        assert isinstance(batch.run()[0].error, tern.Gone)
        assert s.table("kv").all() and (s.written, s.allocated, s.tokens) == (40, 40, 40)
        s.extend(allocated=64)
    pool.close()


def test_closed_connection_says_so(daemons: tuple[Daemon, Daemon]) -> None:
    c = tern.connect(daemons[0].socket)
    pool = c.join(next(names)).open_pool([KV], bytes=POOL)
    s = pool.session(ns("closed"))
    c.close()
    for call in (c.ping, lambda: s.match(range(8)), lambda: pool.done_step(1), lambda: pool.session(ns("x"))):
        with pytest.raises(tern.DaemonLost, match="connect again"):
            call()


def test_exhausted_has_the_numbers(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.session(ns("full")) as s:
        s.match(())
        with pytest.raises(tern.Quota, match="can never fit: group 'kv' needs 1000 pages at once, and could have") as never:
            s.extend(allocated=1000 * PAGE)
        shortage = never.value.shortage
        assert (shortage.group, shortage.needed) == ("kv", 1000) and 0 < shortage.free < 1000
        s.extend(allocated=shortage.free * PAGE)
        s.rewind(0, step=9)
        with pytest.raises(tern.Exhausted, match="tern_extend: group 'kv' needs 1 pages") as told:
            s.extend(allocated=PAGE)
        assert told.value.until_step == 9
        pool.done_step(9)
        engine.connection.wait_published(9)
        s.extend(allocated=PAGE)
    pool.close()


def test_refusals_are_typed_and_say_why(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.session(ns("refused")) as s:
        with pytest.raises(tern.Invalid, match="no turn has begun: Match first"):
            s.finish(0, step=tern.STEP_NONE)
        s.match(range(40))
        s.extend(written=40, allocated=40)
        with pytest.raises(tern.Invalid, match="TERN_STEP_NONE"):
            s.commit(32, step=0)
        with pytest.raises(tern.Invalid, match="depth 30 is not a multiple of 16: use 16 or 32") as why:
            s.commit(30, step=tern.STEP_NONE)
        assert why.value.align == 16
        with pytest.raises(tern.Invalid, match="rewind with length 41 is refused: the length is above the allocated length"):
            s.rewind(41, step=tern.STEP_NONE)
        with pytest.raises(tern.Invalid, match="above the allocated length; the session has committed 0, written 40"):
            s.finish(5000, step=tern.STEP_NONE)
        with pytest.raises(tern.Invalid, match="written is more than the session's tokens: append tokens"):
            s.extend(append=[40], written=42, allocated=48)
        with pytest.raises(tern.Invalid, match="written is more than allocated"):
            s.extend(append=[40], written=41)
        with pytest.raises(tern.Invalid, match="written is less than before, and only a rewind"):
            s.extend(written=39)
        with pytest.raises(tern.Invalid, match="allocated is less than before, and only a rewind"):
            s.extend(allocated=39)
        s.extend(allocated=48)
        with pytest.raises(tern.Invalid, match="above the written length: raise the written length by tern_extend"):
            s.commit(48, step=tern.STEP_NONE)
        s.commit(32, step=tern.STEP_NONE)
        with pytest.raises(tern.Invalid, match="below the committed length, which cannot shrink"):
            s.rewind(31, step=tern.STEP_NONE)
        s.abort(step=tern.STEP_NONE)
        assert s.tokens == 0 and len(s.table("kv")) == 0  # no turn has finished, so no tokens are kept
        assert s.match(range(40)).matched == 32
        with pytest.raises(tern.Invalid, match="no such peer"):
            s.fetch("nobody", step=tern.STEP_NONE)
        with pytest.raises(tern.Unsupported, match="no disk tier: start it with --spill.dir"):
            s.store(32)
        with pytest.raises(tern.Unsupported, match="no disk tier"):
            s.store()
        with pytest.raises(tern.Invalid, match="longer than the 4,194,304 tokens"):
            s.extend(allocated=4_194_305)
        zeros = np.zeros(4_194_305, np.uint32)
        with pytest.raises(tern.Invalid, match="at most 4,194,304 tokens, and this list would end at 4194305"):
            s.extend(append=zeros[40:])
        with pytest.raises(tern.Invalid, match="at most 4,194,304 tokens, and this list would end at 4194305"):
            s.match(zeros)
        batch = engine.batch()
        for base in (39, 41):
            batch.extend(s, append=[1], base=base)
        for op, base in zip(batch.run(), (39, 41)):
            assert isinstance(op.error, tern.Conflict)
            assert f"begin at base {base}, and the session has 40 tokens: base is 40" in str(op.error)
        with pytest.raises(tern.Invalid, match="use one of 'host', 'drop'"):
            s.retract("away", step=tern.STEP_NONE)
    with pytest.raises(tern.Gone):
        s.extend(allocated=4)
    with pytest.raises(tern.Invalid, match="no group 'v': there are kv"):
        pool.pages("v")
    pool.close()


def test_prefetch_is_a_fetch(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.session(ns("prefetch")) as s:
        s.match(range(40))
        for ahead in (False, True):  # the host tier has no part of it
            assert s.fetch(None, step=tern.STEP_NONE, prefetch=ahead).fetched_kib == 0
    pool.close()


def test_arguments_are_named(engine: tern.Engine) -> None:
    pool, connection = engine.open_pool([KV], bytes=POOL), engine.connection
    batch = engine.batch()
    with pool.session(ns("arguments")) as s:
        s.match(range(40))
        none: Any = None
        calls: dict[str, Callable[[Any], object]] = {
            "allocated": lambda x: s.extend(allocated=x),
            "written": lambda x: batch.extend(s, written=x),
            "depth": lambda x: s.commit(x, step=1),
            "length": lambda x: s.rewind(x, step=1),
            "next_commit": lambda x: batch.slide(s, x, step=1),
            "at_least": lambda x: s.fetch(None, at_least=x, step=1),
            "step": lambda x: s.commit(16, step=x),
            "deadline_ms": lambda x: s.match((), deadline_ms=x),
            "rank": lambda x: connection.join("x", rank=x),
            "bytes": lambda x: engine.open_pool([KV], bytes=x),
            "handle": lambda x: engine.map_pool(x, [KV], align_tokens=PAGE),
            "trace_id": connection.trace,
        }
        for name, call in calls.items():
            for wrong in (None, 40.0, "40", -1, 2**64):
                with pytest.raises(tern.Invalid, match=f"^{name}="):
                    call(wrong)
        steps: list[Callable[[Any], object]] = [pool.done_step, connection.wait_published, lambda x: s.close(step=x)]
        for forgotten in steps:
            with pytest.raises(tern.Invalid, match="step=None: pass the number of the last step .* tern.STEP_NONE"):
                forgotten(none)
        with pytest.raises(tern.Invalid, match="peer=7: pass a string"):
            s.fetch(7, step=1)  # type: ignore[arg-type]
        s.extend(allocated=np.uint32(40), written=np.int64(40))  # type: ignore[arg-type]
        assert (s.committed, s.written, s.allocated) == (0, 40, 40) and len(batch) == 0
    for part in ("model", "revision", "kv_dtype", "lora", "salt"):
        parts: dict[str, Any] = {part: 7}
        with pytest.raises(tern.Invalid, match=f"^{part}=7: pass a string"):
            pool.session(tern.Namespace(**parts))
    pool.close()


def test_layouts_are_refused_by_the_name_of_the_group(engine: tern.Engine) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("dtype='bfloat16': use uint16 for bfloat16", {"dtype": "bfloat16"}),
        ("page_tokens=16.0", {"page_tokens": 16.0}),
        ("page_tokens", {"page_tokens": 0}),
        ("window=-1", {"window": -1}),
        (r"shape\[1\]=-2", {"shape": (2, -2)}),
        ("use one of 'history'", {"family": "windows"}),
        ("3 axes and 1 names", {"axes": ("token",)}),
        ("page_bytes", {"shape": (2, 0, 8)}),
        ("units", {"units": 7}),
        ("window", {"family": "window"}),
    ]
    for text, change in wrong:
        with pytest.raises(tern.Invalid, match=f"group 'kv'.*{text}"):
            engine.open_pool([SSM, dataclasses.replace(KV, **change)], bytes=POOL)
    with pytest.raises(tern.Invalid, match="two groups have the name 'kv'"):
        engine.open_pool([KV, KV], bytes=POOL)
    with pytest.raises(tern.Invalid, match="two groups have the name 'kv'"):
        engine.map_pool(1, [KV, KV], align_tokens=PAGE)


def test_a_session_gives_way_and_comes_back(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL, host_bytes=POOL)
    with pool.session(ns("away")) as s:
        s.match(range(40))
        s.extend(written=40, allocated=40)
        with engine.step() as step:
            write(pool, s, 0, 40)
            s.commit(32, step=step)
        engine.connection.wait_published(step)
        for mode in ("drop", "host"):
            s.retract(mode, step=step)
            with pytest.raises(tern.Invalid, match="retracted: Recover it first"):
                s.extend(allocated=48)
            s.recover(deadline_ms=10000)
            assert s.written == (32 if mode == "drop" else 40)
            first = s.written
            s.extend(allocated=40)
            write(pool, s, first, 40)
            s.extend(written=40)
            assert wrong(pool, s, 40) == 0
    pool.close()


def test_tokens_are_32_bit_ids(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.session(ns("ids")) as s:
        wrong: list[Any] = [[1, -1], [1, 2**32 + 5], np.array([1, -1]), [1, 2**70], [1.5], ["a"]]
        for tokens in wrong:
            with pytest.raises(tern.Invalid, match="token|integers"):
                s.match(tokens)
        with pytest.raises(tern.Invalid, match="token -1 at position 1 is not a 32-bit id"):
            s.match([1, -1])
        assert s.match([0, 2**32 - 1]).tokens == 2
        assert s.match(np.array([0, 2**32 - 1, 7], np.int64)).tokens == 3
        assert s.match([0, 2**32 - 1, 7, *np.array([8], np.uint16)]).tokens == 4
    pool.close()


def test_a_turn_has_the_session_for_itself(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    s, batch = pool.session(ns("turns")), engine.batch()
    with s.turn() as turn:
        turn.match(range(40))
        turn.extend(written=40, allocated=44)
        with batch:
            batch.extend(turn, allocated=48)
        assert s.allocated == 48 and list(s.table("kv")) == list(turn.table("kv")) and turn.handle != s.handle
        with pytest.raises(tern.Busy, match="a turn of this session is in flight"):
            s.extend(allocated=64)
        held, lengths = list(turn.table("kv")), (s.committed, s.written, s.allocated, s.tokens)
        rivals: list[Callable[[], object]] = [
            lambda: s.match([1]),
            lambda: s.extend(allocated=64),
            lambda: s.rewind(0, step=9),
            lambda: s.abort(step=9),
            lambda: s.fetch("host-b", step=9),
        ]
        for rival in rivals:  # a rival that is refused takes nothing from the turn
            with pytest.raises(tern.Busy, match="a turn of this session is in flight"):
                rival()
            assert list(turn.table("kv")) == held
            assert (s.committed, s.written, s.allocated, s.tokens) == lengths
        with pytest.raises(tern.Busy, match="a turn of this session is in flight"), s.turn():
            raise AssertionError("two turns at once")
        with pytest.raises(tern.Conflict, match="end that turn first"), turn.turn():
            raise AssertionError("a turn within a turn")
        turn.rewind(32, step=9)
    s.extend(allocated=48)
    with pytest.raises(tern.Gone):
        turn.extend(allocated=64)
    assert s.allocated == 48
    s.close(step=tern.STEP_NONE)
    with pool.session(ns("turns")) as other:
        other.match(())
        with pytest.raises(tern.Quota) as never:
            other.extend(allocated=POOL)
        with pytest.raises(tern.Exhausted) as told:
            other.extend(allocated=never.value.shortage.free * PAGE)
        assert told.value.until_step == 9 and told.value.shortage.retiring == 4  # the turn ended at 9
    pool.close()


def test_a_turn_ends_with_its_block_whatever_happened(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.session(ns("ends")) as s:
        with pytest.raises(ZeroDivisionError), s.turn():
            raise ZeroDivisionError
        with s.turn() as turn, pytest.raises(tern.Invalid):
            turn.rewind(99, step=tern.STEP_NONE)
        with s.turn() as turn:
            turn.close(step=tern.STEP_NONE)
        assert not s.open and s.allocated == 0
        with pytest.raises(tern.Gone), s.turn():
            raise AssertionError("a turn of a session that is closed")
    pool.close()


def test_batches_tell_each_operation_apart(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    batch = engine.batch()
    a, b = pool.session(ns("batch")), pool.session(ns("batch"))
    for s in (a, b):
        s.match(range(16))
    with batch:
        for s in (a, b):
            batch.extend(s, written=16, allocated=20)
            batch.extend(s, append=[16, 17], written=18)
    assert a.tokens == 18 and len(b.table("kv")) == 2 and len(batch) == 0
    assert batch.run() == []  # an iteration may have no operation
    with pytest.raises(tern.BatchFailed, match="1 operations failed; the first: tern_rewind") as told:
        with batch:
            batch.rewind(a, 99, step=tern.STEP_NONE)
            batch.rewind(b, 16, step=tern.STEP_NONE)
    assert told.value.failed[0].session is a and b.allocated == 16
    batch.rewind(a, 99, step=tern.STEP_NONE)
    batch.barrier()
    batch.close(b, step=tern.STEP_NONE)
    refused, untried = batch.run()
    assert isinstance(refused.error, tern.Invalid) and untried.error is None and untried.result is None
    with batch:
        batch.close(a, step=tern.STEP_NONE)
        batch.close(b, step=tern.STEP_NONE)
    assert not a.open and not b.open
    pool.close()


def test_a_namespace_that_is_reset_is_empty(engine: tern.Engine) -> None:
    pool = engine.open_pool([KV], bytes=POOL)
    with pool.session(ns("reset")) as s:
        s.match(range(16))
        s.extend(written=16, allocated=16)
        with engine.step() as step:
            s.commit(16, step=step)
        engine.connection.wait_published(step)
    assert pool.peek(ns("reset"), range(16)).resumable == 16
    assert engine.connection.namespace_reset(ns("reset")).unreached == 0
    assert pool.peek(ns("reset"), range(16)).resumable == 0
    assert "pools" in engine.connection.stats()
    pool.close()


def test_a_batch_without_an_answer_is_empty(daemons: tuple[Daemon, Daemon]) -> None:
    """The batch keeps no operation for the next request, whose answers are for other sessions."""
    with tern.connect(daemons[0].socket) as c:
        engine = c.join(next(names))
        pool, batch = engine.open_pool([KV], bytes=POOL), engine.batch()
        with pool.session(ns("unheard")) as unheard, pool.session(ns("unheard")) as other:
            for s in unheard, other:
                s.match(range(3 * PAGE))
            batch.extend(unheard, allocated=PAGE)
            daemons[0].process.send_signal(signal.SIGSTOP)
            try:
                with pytest.raises(tern.TimedOut):
                    batch.run(deadline_ms=50)
            finally:
                daemons[0].process.send_signal(signal.SIGCONT)
            batch.extend(other, allocated=3 * PAGE)
            ops = batch.run()
            assert [op.session for op in ops] == [other] and not ops[0].error
            assert (unheard.allocated, other.allocated) == (0, 3 * PAGE)
            assert unheard.recover().allocated == PAGE
            assert not set(unheard.table("kv")) & set(other.table("kv"))
