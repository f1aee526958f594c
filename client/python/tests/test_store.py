"""The store that the adapters of engines share: threads, a lost, slow, full or wrong daemon, and
values by address."""

from __future__ import annotations

import hashlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from daemons import Daemon, configured, for_blocks, run

import tern
from tern.store import Settings, Store, StoreSet, block_key

BYTES = 20000
RETRY_S = 0.3
NS = tern.Namespace(model="m")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    yield from for_blocks(tmp_path, "4M")


def store(d: Daemon, **more: Any) -> Store:
    given = {"socket": d.socket, "pool_bytes": 2 << 20, "retry_s": RETRY_S, "find_ms": 200, "copy_ms": 2000}
    return Store(Settings.of(given | more))


def key(i: int) -> bytes:
    return hashlib.sha256(str(i).encode()).digest()


def value(i: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(i).integers(0, 256, BYTES, dtype=np.uint8)


def again(one: StoreSet, keys: list[bytes], found: list[bool]) -> float:
    """Repeats a find until it returns `found`. Returns the seconds that took."""
    begin = time.monotonic()
    while one.find(keys) != found:
        assert time.monotonic() < begin + 30, one.store.counts
        time.sleep(0.02)
    return time.monotonic() - begin


def test_threads_of_an_engine_share_sets(daemon: Daemon) -> None:
    s = store(daemon, sets_max=2)
    one = s.prepare(NS, "kv", BYTES)
    wrong: list[object] = []

    def work(thread: int) -> None:
        got = np.zeros((4, BYTES), np.uint8)
        for i in range(thread * 100, thread * 100 + 12, 4):
            keys = [key(n) for n in range(i, i + 4)]
            if not all(one.put(keys, [value(n) for n in range(i, i + 4)])):
                wrong.append(("put", i))
            if not all(one.get(keys, list(got))) or any((got[n] != value(i + n)).any() for n in range(4)):
                wrong.append(("get", i))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and 1 <= len(s.born) <= 2, (wrong, s.counts)
    assert one.front([key(0), key(1), key(99), key(2)]) == 2 and one.find([key(99), key(2)]) == [False, True]
    assert one.remove([key(0), key(99)]) == [True, True] and one.front([key(0)]) == 0
    assert s.counts["keys not stored"] == 0 and s.counts["put keys there"] == 72
    s.close()
    assert not s.born and one.find([key(1)]) == [False] and s.counts["find PAUSED"] == 1


def test_values_lie_at_addresses(daemon: Daemon) -> None:
    one = store(daemon).prepare(NS, "kv", BYTES)
    memory = np.random.default_rng(1).integers(0, 256, (3, 4, BYTES // 4), dtype=np.uint8)  # [piece's half, value, byte]
    pieces = np.array([[memory[h, v].ctypes.data for h in (0, 2)] for v in range(4)], np.uint64)
    keys = [key(i) for i in range(4)]
    spans = tern.Spans(pieces, (BYTES // 4, BYTES // 4))
    assert one.put(keys, spans) == [False] * 4 and one.store.counts["put INVALID"] == 1  # only half a value
    pieces = np.concatenate([pieces, pieces], axis=1)
    assert all(one.put(keys, tern.Spans(pieces, [BYTES // 4] * 4)))
    got = np.zeros((4, 4, BYTES // 4), np.uint8)  # [value, piece, byte]
    at = got.ctypes.data + np.arange(16, dtype=np.uint64).reshape(4, 4) * np.uint64(BYTES // 4)
    assert all(one.get(keys, tern.Spans(at, [BYTES // 4] * 4)))
    for v in range(4):
        for p, h in enumerate((0, 2, 0, 2)):
            assert (got[v, p] == memory[h, v]).all()
    with pytest.raises(tern.Invalid, match="2 pieces"), tern.Blocks(
        daemon.socket, namespace=NS, group="kv", value_bytes=BYTES, pool_bytes=2 << 20
    ) as blocks:
        blocks.get(keys, tern.Spans(at, [1, 2]))


def test_a_lost_daemon_is_a_miss_until_it_is_back(daemon: Daemon) -> None:
    s = store(daemon)
    one = s.prepare(NS, "kv", BYTES)
    assert one.put([key(1)], [value(1)]) == [True]
    daemon.process.kill()
    daemon.process.wait()
    begin = time.monotonic()
    for _ in range(50):
        assert one.find([key(1)]) == [False] and one.get([key(1)], [bytearray(BYTES)]) == [False]
        assert one.put([key(1)], [value(1)]) == [False]
    spent = time.monotonic() - begin
    assert s.counts["find DAEMON_LOST"] >= 1 and not s.born
    lost = sum(n for what, n in s.counts.items() if "DAEMON_LOST" in what)
    paused = sum(n for what, n in s.counts.items() if "PAUSED" in what)
    assert lost + paused == 150 and lost <= 1 + spent / RETRY_S + 1
    back = run(Path(daemon.socket).parent, "host-a")
    try:
        again(one, [key(1)], [False])
        while one.put([key(1)], [value(1)]) != [True]:
            assert time.monotonic() < begin + 30, s.counts
        assert one.find([key(1)]) == [True] and len(s.born) == 1
    finally:
        back.process.kill()
        back.process.wait()


def test_a_daemon_that_does_not_answer_costs_one_deadline(daemon: Daemon) -> None:
    s = store(daemon)
    one = s.prepare(NS, "kv", BYTES)
    assert one.put([key(1)], [value(1)]) == [True]
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        assert one.find([key(1)]) == [False]
        first = time.monotonic() - begin
        assert 0.15 < first < 5 and s.counts["find TIMED_OUT"] == 1
        assert one.find([key(1)]) == [False] and one.put([key(2)], [value(2)]) == [False]
        assert s.counts["find PAUSED"] == 1 and s.counts["put PAUSED"] == 1
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    again(one, [key(1)], [True])


def test_a_full_pool_keeps_what_it_can(daemon: Daemon) -> None:
    s = store(daemon, pool_bytes=20 * (BYTES + 64), copy_ms=200)
    one = s.prepare(NS, "kv", BYTES)
    blocks = one._take(time.monotonic() + 5)
    blocks.put([key(i) for i in range(30)], [value(i) for i in range(30)])
    kept = [key(i) for i, place in enumerate(blocks.find([key(i) for i in range(30)])) if place != "nowhere"]
    with blocks.pin(kept):
        assert one.put([key(100), kept[0], key(101)], [value(0)] * 3) == [False, True, False]
        assert s.counts["keys not stored"] == 2 and one.find([key(100)]) == [False]
    one._give(blocks)
    assert one.put([key(200)], [value(200)]) == [True]


def test_what_is_wrong_is_refused_at_the_start(daemon: Daemon) -> None:
    for given, match in (
        ({"pool_bytes": 1}, "need 'socket'"),
        ({"socket": "x"}, "need 'pool_bytes'"),
        ({"socket": "x", "pool_bytes": 1, "pool": 2}, "'pool' is not a setting"),
        ({"socket": "x", "pool_bytes": 1, "sets_max": 0}, "sets_max"),
        ({"socket": "x", "pool_bytes": "1X"}, "pool_bytes must be a number of bytes"),
        ({"socket": "x", "pool_bytes": {"kv": -1}}, "pool_bytes of kv"),
        ({"socket": "x", "pool_bytes": 1, "hosts": ""}, "hosts must be"),
        ({"socket": "x", "pool_bytes": 1, "hosts": ["any"]}, "hosts must be"),
        ("x", "a mapping of"),
    ):
        with pytest.raises(tern.Invalid, match=match):
            Settings.of(given)
    sizes = Settings.of({"socket": "x", "pool_bytes": {"kv": "2M", "state": 5}, "host_bytes": "1G"})
    assert [sizes.bytes_of(*of) for of in (("kv", "pool_bytes"), ("state", "pool_bytes"), ("kv", "host_bytes"))] == [
        2 << 20, 5, 1 << 30,
    ]  # fmt: skip
    with pytest.raises(tern.Invalid, match="'state'"):
        store(daemon, pool_bytes={"kv": 1 << 20}).prepare(NS, "state", BYTES)
    with pytest.raises(tern.Quota):
        store(daemon, pool_bytes=1 << 30).prepare(NS, "kv", BYTES)
    with pytest.raises(tern.Invalid):
        store(daemon).prepare(NS, "kv", 8)
    with pytest.raises(tern.Invalid, match="'host-c'"):
        store(daemon, hosts="host-c").prepare(NS, "kv", BYTES)
    s = store(daemon, socket=daemon.socket + ".none")
    assert s.prepare(NS, "kv", BYTES).find([key(1)]) == [False] and s.counts["open DAEMON_LOST"] == 1
    assert not s.reset()


def test_a_reset_removes_a_namespace(daemon: Daemon) -> None:
    s = store(daemon)
    one, two = s.prepare(NS, "kv", BYTES), s.prepare(tern.Namespace(model="two", salt="s/1"), "state", BYTES // 2)
    other = store(daemon).prepare(tern.Namespace(model="m", salt="s"), "kv", BYTES)
    for each in (one, two, other):
        assert each.put([key(1)], [value(1)[: each.value_bytes]]) == [True]
    assert s.reset() and one.find([key(1)]) == two.find([key(1)]) == [False] and other.find([key(1)]) == [True]
    assert one.put([key(1)], [value(1)]) == [True]


def test_sets_are_limited(daemon: Daemon) -> None:
    s = store(daemon, sets_max=1)
    one = s.prepare(NS, "kv", BYTES)
    lent = one._take(time.monotonic() + 5)
    assert one.find([key(1)]) == [False] and s.counts["find BUSY"] == 1
    s.close()
    assert lent.is_open
    one._give(lent)
    assert not lent.is_open and not s.born


def test_fewer_sets_do_where_the_daemon_admits_no_more(tmp_path: Path) -> None:
    d = run(configured(tmp_path / "host-a", "memory: 4M", "page_bytes_min: 4096\nlimits: {engines: 2}\n"), "host-a")
    s = store(d, sets_max=4, find_ms=20000)
    one, wrong = s.prepare(NS, "kv", BYTES), list[bool]()
    assert one.put([key(1)], [value(1)]) == [True]
    lent = [one._take(time.monotonic() + 5) for _ in range(2)]
    threads = [threading.Thread(target=lambda: wrong.extend(f for f in one.find([key(1)] * 3) if not f)) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not s.counts["open QUOTA"] + s.counts["open BUSY"]:
        time.sleep(0.01)
    for blocks in lent:
        one._give(blocks)
    for thread in threads:
        thread.join()
    assert not wrong and len(s.born) == 2 and not s.counts["find PAUSED"], s.counts
    d.process.kill()
    d.process.wait()


def test_keys_of_engines() -> None:
    digest = key(1)
    assert block_key(digest.hex()) == block_key(digest) == digest
    assert block_key(digest.hex().upper()) != digest and len(block_key(digest.hex() + "0")) == 32
    assert block_key("short") == b"short" and len(block_key("")) == 32 and block_key(b"x" * 32) == b"x" * 32
    assert len({block_key(n) for n in ("a" * 33, "a" * 34, "a" * 63, "a" * 64, "a" * 65)}) == 5
