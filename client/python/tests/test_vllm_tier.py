"""tern.vllm_tier, driven as vLLM's scheduler drives a tier. tests/engines runs vLLM's own manager
and spec."""

from __future__ import annotations

import hashlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from daemons import Daemon, for_blocks

import tern

sys.path.insert(0, str(Path(__file__).parent / "stubs"))

from vllm.v1.core import kv_cache_utils  # noqa: E402
from vllm.v1.kv_offload.base import LookupResult  # noqa: E402
from vllm.v1.kv_offload.tiering.base import TransferJob  # noqa: E402

from tern import vllm_tier  # noqa: E402
from tern.store import block_key  # noqa: E402
from tern.vllm_tier import TernTier  # noqa: E402

ROW, ROWS = 8192, 16
HIT, MISS, RETRY = LookupResult.HIT, LookupResult.MISS, LookupResult.RETRY


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    yield from for_blocks(tmp_path, "8M")


def spec(**more: Any) -> Any:
    parallel = SimpleNamespace(
        world_size=2, tp_size=2, pp_size=1, pcp_size=1, dcp_size=1, is_parallelism_agnostic=more.pop("agnostic", False)
    )
    for name in ("world_size", "tp_size"):
        setattr(parallel, name, more.pop(name, 2))
    groups = (SimpleNamespace(group_id=0, tokens_per_block=16, layer_names=("a", "b")),)
    given = {
        "groups": groups, "model": SimpleNamespace(name="llama", dtype="bfloat16"), "parallel": parallel,
        "cache": SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=1), "kv_cache_layout": "LBNHC",
        "canonical_layout": False, "replicated_layout": False,
    }  # fmt: skip
    events = SimpleNamespace(enable_kv_cache_events=True)
    return SimpleNamespace(config=SimpleNamespace(**(given | more)), kv_events_config=events)


class Engine:
    """A primary tier, and the calls that vLLM's manager makes on a tier."""

    def __init__(self, d: Daemon, seed: int = 0, of: Any = None, **more: Any) -> None:
        self.rows = np.random.default_rng(seed).integers(0, 256, (ROWS, ROW), dtype=np.uint8)
        given: dict[str, Any] = {"socket": d.socket, "pool_bytes": 1 << 20, "retry_s": 0.3}
        self.tier = TernTier(of or spec(), memoryview(self.rows.data), "TernTier", **(given | more))
        self.jobs = 0
        self.request("r")

    def request(self, name: str) -> Any:
        context = SimpleNamespace(req_id=name)
        self.tier.on_new_request(context)
        return context

    def ask(self, keys: list[bytes], name: str = "r") -> list[LookupResult]:
        """Looks the keys up in as many steps as it takes; each look-up of a step returns at once."""
        context = SimpleNamespace(req_id=name)
        end = time.monotonic() + 20
        while RETRY in (found := [self.tier.lookup(k, context) for k in keys]):
            self.tier.on_schedule_end(None)
            assert time.monotonic() < end, self.tier._store.counts
            time.sleep(0.002)
        return found

    def move(self, keys: list[bytes], chunks: list[int], load: bool) -> Any:
        self.jobs += 1
        job = TransferJob(self.jobs, keys, np.array(chunks, np.int32), load, SimpleNamespace(req_id="r"))
        (self.tier.submit_load if load else self.tier.submit_store)(job)
        self.tier.drain_jobs()
        (result,) = self.tier.get_finished_jobs()
        assert result.job_id == self.jobs
        return result


def keys(n: int, group: int = 0) -> list[bytes]:
    return [hashlib.sha256(str(i).encode()).digest() + group.to_bytes(4, "big") for i in range(n)]


def test_a_second_instance_loads_what_the_first_stored(daemon: Daemon) -> None:
    one, two = Engine(daemon, 1, enable_kv_events=True), Engine(daemon, 2)
    before = two.rows.copy()
    assert one.ask(keys(3)) == [MISS] * 3
    result = one.move(keys(3), [4, 0, 9], load=False)
    assert result.success and result.transfer_bytes == 3 * ROW
    assert [e.keys for e in one.tier.take_events()] == [keys(3)] and not list(one.tier.take_events())
    assert two.tier.lookup(keys(3)[0], SimpleNamespace(req_id="r")) is RETRY
    assert two.ask([*keys(4), *keys(1, group=1)]) == [HIT, HIT, HIT, MISS, MISS]
    two.tier.touch(keys(3), None)
    result = two.move(keys(4), [1, 2, 3, 4], load=True)
    assert not result.success and list(result.successful_keys) == keys(3)
    for to, where in ((1, 4), (2, 0), (3, 9)):
        assert (two.rows[to] == one.rows[where]).all()
    assert (two.rows[5:] == before[5:]).all() and (two.rows[0] == before[0]).all()
    # An answer for a request stays the same until the request ends, except for chunks that could
    # not be loaded.
    assert one.ask(keys(1)) == [MISS]
    one.tier.on_request_finished(SimpleNamespace(req_id="r"))
    assert one.ask(keys(1), "s") == [HIT]
    one.tier._blocks.remove([block_key(k) for k in keys(3)])
    assert two.ask(keys(1)) == [HIT] and not two.move(keys(1), [1], load=True).success
    assert two.ask(keys(1)) == [MISS]
    for each in (one, two):
        each.tier.shutdown()
        assert not each.tier._store.born and not any(t.is_alive() for t in each.tier._threads)


def test_chunks_of_another_host_are_hits(daemons: tuple[Daemon, Daemon]) -> None:
    one, alone, two = Engine(daemons[0], 1), Engine(daemons[1], 2), Engine(daemons[1], 3, hosts="any")
    assert one.move(keys(3), [4, 0, 9], load=False).success
    assert alone.ask(keys(4)) == [MISS] * 4 and two.ask(keys(4)) == [HIT] * 3 + [MISS]
    assert two.move(keys(3), [1, 2, 3], load=True).success
    assert all((two.rows[to] == one.rows[where]).all() for to, where in ((1, 4), (2, 0), (3, 9)))
    assert alone.ask(keys(4), "s") == [MISS] * 4  # the first answer stays, until that request ends
    alone.tier.on_request_finished(SimpleNamespace(req_id="r"))
    alone.tier.on_request_finished(SimpleNamespace(req_id="s"))
    assert alone.ask(keys(4), "t") == [HIT] * 3 + [MISS]
    for each in (one, alone, two):
        each.tier.shutdown()
    for hosts, match in (("host-c", "'host-c'"), ([], "hosts must be")):
        with pytest.raises(tern.Invalid, match=match):
            Engine(daemons[1], hosts=hosts)


def test_nothing_is_kept_of_requests_that_ended(daemon: Daemon) -> None:
    engine = Engine(daemon)
    engine.ask(keys(4))
    engine.tier.lookup(keys(9)[8], SimpleNamespace(req_id="s"))
    engine.tier.on_request_finished(SimpleNamespace(req_id="s"))  # before its answer arrives
    engine.tier.on_schedule_end(None)
    engine.tier.on_request_finished(SimpleNamespace(req_id="r"))
    end = time.monotonic() + 20
    while engine.tier._lookups:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not engine.tier._by_request
    engine.tier.shutdown()


def test_one_step_is_one_find(daemon: Daemon) -> None:
    engine = Engine(daemon)
    for n in range(300):
        engine.tier.lookup(keys(300)[n], SimpleNamespace(req_id="r"))
    engine.ask(keys(300))
    requests = sum(b.counts().requests for b in engine.tier._store.born)
    assert engine.tier._store.counts["find keys"] == 300 and requests < 10
    engine.tier.shutdown()


def test_the_scheduler_never_waits(daemon: Daemon) -> None:
    engine = Engine(daemon, find_ms=200, copy_ms=400)
    engine.move(keys(1), [0], load=False)
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        context = engine.request("s")
        assert engine.tier.lookup(keys(1)[0], context) is RETRY
        engine.tier.on_schedule_end(None)
        engine.tier.submit_store(TransferJob(50, keys(2)[1:], np.array([1], np.int32), False, context))
        engine.tier.touch(keys(1), context)
        assert list(engine.tier.get_finished_jobs()) == [] and time.monotonic() - begin < 0.15
        assert engine.ask(keys(1), "s") == [MISS]
        engine.tier.drain_jobs()
        (result,) = engine.tier.get_finished_jobs()
        assert not result.success
        counted = engine.tier.get_stats().counters
        assert counted[vllm_tier.FAILURES, ("find TIMED_OUT",)] == 1 and engine.tier.get_stats().is_empty()
        assert vllm_tier.FAILURES in TernTier.build_metric_definitions({})
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    engine.tier.shutdown()


def test_what_is_apart_and_what_is_shared(daemon: Daemon) -> None:
    names = {}
    for what, one in (
        ("", spec()), ("tp", spec(tp_size=4, world_size=4)), ("layout", spec(kv_cache_layout="NHD")),
        ("groups", spec(groups=())), ("model", spec(model=SimpleNamespace(name="qwen", dtype="bfloat16"))),
        ("agnostic", spec(agnostic=True)),
    ):  # fmt: skip
        names[what] = vllm_tier.namespace_of(one.config, ROW)
    assert len(set(names.values())) == len(names)
    assert vllm_tier.namespace_of(spec(agnostic=True, tp_size=4).config, ROW) == names["agnostic"]
    assert vllm_tier.namespace_of(spec().config, ROW) == names[""]


def test_what_is_wrong_is_refused(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    for more, match in (({"sockt": 1}, "'sockt'"), ({"copy_threads": 0}, "copy_threads"), ({"pool_bytes": 1 << 30}, "")):
        with pytest.raises(tern.TernError, match=match):
            Engine(daemon, **more)
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setattr(kv_cache_utils, "get_none_hash_seed", lambda: "random")
    engine = Engine(daemon)
    assert engine.tier.lookup(keys(1)[0], SimpleNamespace(req_id="r")) is MISS
    assert not engine.move(keys(1), [0], load=False).success
    assert engine.tier._store.counts["seed INVALID"] == 1
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert Engine(daemon).tier.lookup(keys(1)[0], SimpleNamespace(req_id="r")) is RETRY
