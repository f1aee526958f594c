"""tern.lmcache, called as LMCache calls a native connector. tests/engines has LMCache's own
adapter."""

from __future__ import annotations

import ctypes
import hashlib
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daemons import Daemon, for_blocks

import tern
from tern.lmcache import SIZES_MAX, Completion, TernConnector

BYTES = 16000


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    yield from for_blocks(tmp_path, "16M")


class Lmcache:
    def __init__(self, d: Daemon, **more: Any) -> None:
        given: dict[str, Any] = {"socket": d.socket, "pool_bytes": 1 << 20, "retry_s": 0.3}
        self.plugin = TernConnector(**(given | more))

    def wait(self, number: int) -> Completion:
        poll = select.poll()
        poll.register(self.plugin.event_fd(), select.POLLIN)
        assert poll.poll(20000)
        (done,) = self.plugin.drain_completions()
        assert done[0] == number and not poll.poll(0)
        return done

    def put(self, keys: list[str], values: list[Any]) -> Completion:
        return self.wait(self.plugin.submit_batch_set(keys, values))

    def get(self, keys: list[str], values: list[Any]) -> Completion:
        return self.wait(self.plugin.submit_batch_get(keys, values))

    def exists(self, keys: list[str]) -> Completion:
        return self.wait(self.plugin.submit_batch_exists(keys))


def keys(n: int, model: str = "meta/llama") -> list[str]:
    return [f"{model}@00000000@0@{hashlib.sha256(str(i).encode()).hexdigest()}" for i in range(n)]


def buffer(size: int, seed: int = -1) -> memoryview:
    """Returns a buffer as LMCache has it: over a ctypes array."""
    view = memoryview((ctypes.c_ubyte * size)())
    if seed >= 0:
        np.frombuffer(view, np.uint8)[:] = np.random.default_rng(seed).integers(0, 256, size)
    return view


def test_objects_come_back(daemon: Daemon) -> None:
    one, two = Lmcache(daemon), Lmcache(daemon, value_bytes=BYTES)
    values = [buffer(BYTES, i) for i in range(3)] + [buffer(BYTES // 2, 3)]
    assert one.exists(keys(1))[1:] == (True, "", [False])
    assert one.put(keys(4), values)[1:] == (True, "", [True] * 4)
    assert one.exists([*keys(5), *keys(1, "qwen")])[3] == [True] * 4 + [False, False]
    # An instance that knows one of the sizes finds and loads that size, and the other once it has
    # loaded one.
    assert two.exists(keys(4))[3] == [True] * 3 + [False]
    into = [buffer(v.nbytes) for v in values] + [buffer(BYTES)]
    number, ok, why, told = two.get(keys(5), into)
    assert (ok, why, told) == (False, "1 of 5 blocks", [True] * 4 + [False])
    assert all(bytes(a) == bytes(b) for a, b in zip(into, values)) and two.exists(keys(4))[3] == [True] * 4
    assert one.wait(one.plugin.submit_batch_delete([keys(4)[0], keys(4)[3], "none"]))[1:] == (True, "", [True] * 3)
    assert two.exists(keys(4))[3] == [False, True, True, False]
    other = Lmcache(daemon, value_bytes=[BYTES], namespace="fp8")
    assert other.exists(keys(2))[3] == [False] * 2
    for each in (one, two, other):
        each.plugin.close()
        each.plugin.close()
    with pytest.raises(tern.Invalid, match="closed"):
        one.plugin.submit_batch_exists(keys(1))


def test_objects_of_another_host_are_hits(daemons: tuple[Daemon, Daemon]) -> None:
    one, alone = Lmcache(daemons[0]), Lmcache(daemons[1], value_bytes=BYTES)
    two = Lmcache(daemons[1], value_bytes=BYTES, hosts="any")
    values, into = [buffer(BYTES, i) for i in range(3)], [buffer(BYTES) for _ in range(4)]
    assert one.put(keys(3), values)[1]
    assert alone.exists(keys(4))[3] == [False] * 4 and two.exists(keys(4))[3] == [True] * 3 + [False]
    assert two.get(keys(4), into)[3] == [True] * 3 + [False]
    assert all(bytes(a) == bytes(b) for a, b in zip(into, values)) and alone.exists(keys(4))[3] == [True] * 3 + [False]
    for each in (one, alone, two):
        each.plugin.close()
    for hosts, match in (("host-c", "'host-c'"), ("", "hosts must be")):
        with pytest.raises(tern.Invalid, match=match):
            TernConnector(socket=daemons[1].socket, pool_bytes=1 << 20, value_bytes=BYTES, hosts=hosts)


def test_many_are_under_way_at_once(daemon: Daemon) -> None:
    one = Lmcache(daemon, workers=3)
    values = [buffer(BYTES, i) for i in range(4)]
    numbers = {one.plugin.submit_batch_set([f"{n}@{i}" for i in range(4)], values) for n in range(12)}
    end, done = time.monotonic() + 30, list[Completion]()
    while len(done) < 12:
        assert time.monotonic() < end
        done += one.plugin.drain_completions()
        time.sleep(0.005)
    assert {d[0] for d in done} == numbers and all(d[1] for d in done)
    one.plugin.close()


def test_a_daemon_that_does_not_answer(daemon: Daemon) -> None:
    one = Lmcache(daemon, value_bytes=BYTES, copy_ms=300)
    daemon.process.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    number = one.plugin.submit_batch_exists(keys(2))
    assert time.monotonic() - begin < 0.15
    assert one.wait(number)[1:] == (True, "", [False] * 2)
    assert one.put(keys(2), [buffer(BYTES, 1)] * 2)[1:3] == (False, "2 of 2 blocks")
    daemon.process.send_signal(signal.SIGCONT)
    daemon.process.kill()
    daemon.process.wait()
    assert one.get(keys(1), [buffer(BYTES)])[3] == [False]
    one.plugin.close()


def test_what_is_wrong_is_refused(daemon: Daemon) -> None:
    for more, match in (
        ({"host": "x"}, "'host'"),
        ({"workers": 0}, "workers"),
        ({"value_bytes": 8}, ""),
        ({"pool_bytes": 1 << 30, "value_bytes": BYTES}, ""),
    ):
        with pytest.raises(tern.TernError, match=match):
            Lmcache(daemon, **more)
    one = Lmcache(daemon, pool_bytes=64 << 10)
    assert one.wait(one.plugin.submit_batch_get(["a"], []))[1:] == (False, "there are 1 keys and 0 buffers", None)
    sizes = [5000 + 8 * i for i in range(SIZES_MAX + 1)]
    assert one.get([str(n) for n in sizes], [buffer(n) for n in sizes])[3] == [False] * len(sizes)
    assert one.plugin.store.counts["sizes INVALID"] == 1
    one.plugin.close()
