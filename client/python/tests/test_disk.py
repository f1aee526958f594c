"""Sessions that are stored on the disk, and found there after a restart of the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import tern
from daemons import READY_S, Daemon, again, free_port, start
from test_engine import KV, PAGE, POOL, ns, write, wrong

PROMPT = range(1000, 1000 + 6 * PAGE)


def compute(d: Daemon) -> tern.Stored:
    with tern.connect(d.socket) as c:
        engine = c.join("writer")
        pool = engine.open_pool([KV], bytes=POOL)
        with pool.session(ns("disk")) as s:
            assert s.match(PROMPT).disk_depth == 0
            s.extend(written=len(PROMPT), allocated=len(PROMPT))
            with engine.step() as step:
                write(pool, s, 0, len(PROMPT))
                s.commit(len(PROMPT), step=step)
            with pytest.raises(tern.Invalid, match="only committed tokens are stored"):
                s.store(len(PROMPT) + PAGE)
            assert s.store(3 * PAGE + 1).depth == 3 * PAGE
            s.store()
            return s.store()


@pytest.fixture
def with_disk(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "spill").mkdir()
    yield (d := start(tmp_path, "host-a", free_port(), "host-b", free_port(), str(tmp_path / "spill")))
    d.process.terminate()
    assert d.process.wait(READY_S) == 0


def test_requests_go_on_beside_a_store(with_disk: Daemon) -> None:
    async def run() -> None:
        with tern.connect(with_disk.socket) as c:
            engine = c.join("writer")
            pool, aio = engine.open_pool([KV], bytes=POOL), tern.Async(c)
            with pool.session(ns("disk")) as s:
                await aio.match(s, PROMPT)
                s.extend(written=len(PROMPT), allocated=len(PROMPT))
                write(pool, s, 0, len(PROMPT))
                s.commit(len(PROMPT), step=1)
                stored = asyncio.ensure_future(aio.store(s, 3 * PAGE + 1))
                await asyncio.sleep(0.05)
                s.extend(allocated=len(PROMPT) + PAGE)
                assert not stored.done()  # nothing is stored before the step has passed
                pool.done_step(1)
                first = await asyncio.wait_for(stored, 10)
                assert first.depth == 3 * PAGE and first.written >= 3 * KV.page_bytes
                assert await aio.store(s, 3 * PAGE) == tern.Stored(3 * PAGE, 0)
                with pytest.raises(tern.Invalid, match="only committed tokens are stored"):
                    await aio.store(s, len(PROMPT) + PAGE)
            aio.close()

    asyncio.run(run())


def test_what_is_stored_comes_back(with_disk: Daemon) -> None:
    d = with_disk
    assert compute(d) == tern.Stored(len(PROMPT), 0)  # the second store had nothing to write
    d.process = again(d).process
    with tern.connect(d.socket) as c:
        engine = c.join("reader")
        pool = engine.open_pool([KV], bytes=POOL)
        depths = pool.peek(ns("disk"), PROMPT)
        assert (depths.resumable, depths.disk) == (0, len(PROMPT))
        with pool.session(ns("disk")) as s:
            found = s.match(PROMPT)
            assert (found.matched, found.host_depth, found.disk_depth) == (0, 0, len(PROMPT))
            r = s.fetch(tern.PEER_DISK, step=tern.STEP_NONE, depth=2 * PAGE)
            assert (s.committed, r.fetched_kib) == (2 * PAGE, 2 * KV.page_bytes // 1024)
            s.fetch(tern.PEER_DISK, step=tern.STEP_NONE)
            assert s.committed == len(PROMPT) and wrong(pool, s, len(PROMPT)) == 0
