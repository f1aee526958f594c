"""vLLM's own spec, managers and shared region over tern.vllm_tier, on the CPU: the methods that its
scheduler calls."""

# mypy: disable-error-code="import-not-found,attr-defined"

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from daemons import Daemon
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

import tern
from tern.vllm_tier import FAILURES, TernTier

ROW, CHUNKS = 8192, 8
HIT, MISS = LookupResult.HIT, LookupResult.MISS


def config(d: Daemon, **more: Any) -> Any:
    tier = {"type": "TernTier", "module_path": "tern.vllm_tier", "socket": d.socket, "pool_bytes": 4 << 20, "retry_s": 0.3}
    parallel = {
        "rank": 0, "world_size": 2, "tp_size": 2, "pp_size": 1, "pcp_size": 1, "dcp_size": 1, "data_parallel_index": 0,
        "data_parallel_size": 1, "data_parallel_rank_local": None, "is_parallelism_agnostic": False,
    }  # fmt: skip
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=16, layer_names=("layers.0", "layers.1"), group_id=0),),
        worker_kv_bytes_per_block=ROW // 2,
        enable_kv_cache_events=True,
        extra_config={"cpu_bytes_to_use": CHUNKS * ROW, "secondary_tiers": [tier | more]},
        engine_id=uuid.uuid4().hex,
        model=OffloadingModelConfig(name="llama", dtype="bfloat16"),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(**parallel),
        kv_cache_layout="LBNHC",
    )


class Scheduler:
    """The calls of vLLM's scheduler and worker, in their order, with the region's bytes in place of
    a GPU's."""

    def __init__(self, c: Any) -> None:
        self.spec = TieringOffloadingSpec(c)
        self.manager = self.spec.get_manager()
        self.rows = self.manager.primary_tier.get_kv_memoryview()
        (self.tier,) = self.manager.secondary_tiers
        self.requests: dict[str, Any] = {}

    def request(self, name: str) -> Any:
        self.requests[name] = ReqContext(req_id=name)
        self.manager.on_new_request(self.requests[name])
        return self.requests[name]

    def step(self) -> None:
        self.manager.on_schedule_end(ScheduleEndContext(new_req_ids=(), preempted_req_ids=()))

    def store(self, keys: list[bytes], values: list[bytes], context: Any) -> None:
        out = self.manager.prepare_store(keys, context)
        assert out and out.keys_to_store == keys
        for chunk, value in zip(out.store_spec.chunk_ids, values):
            np.asarray(self.rows).view(np.uint8)[int(chunk)] = np.frombuffer(value, np.uint8)
        self.manager.complete_store(keys, context)
        self.idle()

    def idle(self) -> None:
        end = time.monotonic() + 20
        while self.manager.has_pending_work():
            self.step()
            assert time.monotonic() < end
            time.sleep(0.002)

    def lookup(self, keys: list[bytes], context: Any) -> list[Any]:
        end = time.monotonic() + 20
        while True:
            found = [self.manager.lookup(key, context) for key in keys]
            if not {LookupResult.RETRY, LookupResult.HIT_PENDING} & set(found):
                return found
            self.step()
            assert time.monotonic() < end, self.tier._store.counts
            time.sleep(0.002)

    def load(self, keys: list[bytes], context: Any) -> list[bytes]:
        spec = self.manager.prepare_load(keys, context)
        values = [bytes(np.asarray(self.rows)[int(chunk)]) for chunk in spec.chunk_ids]
        self.manager.complete_load(keys, context)
        return values

    def finish(self, name: str) -> None:
        self.manager.on_request_finished(self.requests.pop(name))
        self.step()

    def close(self) -> None:
        del self.rows
        self.manager.shutdown()


@pytest.fixture
def pair(daemon: Daemon) -> Iterator[tuple[Scheduler, Scheduler]]:
    both = Scheduler(config(daemon)), Scheduler(config(daemon))
    yield both
    for one in both:
        one.close()


def keys(n: int, first: int = 0) -> list[bytes]:
    return [make_offload_key(hashlib.sha256(str(i).encode()).digest(), 0) for i in range(first, first + n)]


def values(n: int, seed: int) -> list[bytes]:
    return [np.random.default_rng(seed * 100 + i).bytes(ROW) for i in range(n)]


def test_another_instance_takes_what_one_stored(pair: tuple[Scheduler, Scheduler]) -> None:
    one, two = pair
    assert isinstance(one.tier, TernTier) and one.tier.block_size_bytes == ROW
    r = one.request("r")
    assert one.lookup(keys(3), r) == [MISS] * 3
    one.store(keys(3), values(3, 1), r)
    s = two.request("s")
    assert two.lookup(keys(4), s) == [HIT] * 3 + [MISS]
    assert two.load(keys(3), s) == values(3, 1)
    two.manager.touch(keys(3), s)
    two.finish("s")
    stats = two.manager.get_stats()
    assert stats is not None and not [k for k in stats.data if FAILURES in str(k)]


def test_another_host_takes_what_one_stored(daemons: tuple[Daemon, Daemon]) -> None:
    one, two = Scheduler(config(daemons[0])), Scheduler(config(daemons[1], hosts="any"))
    one.store(keys(3), values(3, 1), one.request("r"))
    s = two.request("s")
    assert two.lookup(keys(4), s) == [HIT] * 3 + [MISS] and two.load(keys(3), s) == values(3, 1)
    for each in (one, two):
        each.close()
    with pytest.raises(tern.Invalid, match="'host-c'"):
        Scheduler(config(daemons[1], hosts="host-c"))


def test_what_the_primary_tier_evicted_comes_back(pair: tuple[Scheduler, Scheduler]) -> None:
    one, _ = pair
    for turn in range(4):  # three times the size of the primary tier
        name = f"r{turn}"
        one.store(keys(6, 6 * turn), values(6, turn), one.request(name))
        one.finish(name)
    for turn in (0, 1, 3):
        context = one.request(f"s{turn}")
        assert one.lookup(keys(6, 6 * turn), context) == [HIT] * 6
        assert one.load(keys(6, 6 * turn), context) == values(6, turn)
        one.finish(f"s{turn}")
    assert not one.tier._lookups and not one.tier._by_request


def test_a_chunk_that_went_away_is_computed(pair: tuple[Scheduler, Scheduler]) -> None:
    one, two = pair
    one.store(keys(2), values(2, 1), one.request("r"))
    s = two.request("s")
    for key in keys(2):
        two.manager.lookup(key, s)
    end = time.monotonic() + 20
    while two.tier._store.counts["find keys there"] < 2:
        two.tier.on_schedule_end(None)
        assert time.monotonic() < end
        time.sleep(0.002)
    assert one.tier._store.reset()
    assert two.lookup(keys(2), s) == [MISS] * 2  # the promotion failed, and then it is a miss
    two.store(keys(2), values(2, 2), s)
    assert one.lookup(keys(2), one.request("t")) == [HIT] * 2  # the old chunks, in the primary tier


def test_a_reset_waits_for_copies(pair: tuple[Scheduler, Scheduler]) -> None:
    one, _ = pair
    one.store(keys(4), values(4, 1), one.request("r"))
    one.finish("r")
    one.manager.reset_cache()
    if hasattr(one.manager, "on_reset_flushed"):  # 0.33 promotes nothing before this call
        one.manager.on_reset_flushed()
    assert not one.manager.has_pending_work()
    assert one.lookup(keys(4), one.request("s")) == [HIT] * 4


def test_a_lost_daemon_is_a_miss(daemon: Daemon, pair: tuple[Scheduler, Scheduler]) -> None:
    one, two = pair
    one.store(keys(2), values(2, 1), one.request("r"))
    daemon.process.kill()
    daemon.process.wait()
    s = two.request("s")
    assert two.lookup(keys(2), s) == [MISS] * 2
    two.store(keys(2), values(2, 2), s)  # its own primary tier still works
    assert two.load(keys(2), s) == values(2, 2)
    stats = two.manager.get_stats()
    assert FAILURES in str(stats.data)


def test_settings_are_checked_at_the_start(daemon: Daemon) -> None:
    for more, match in (({"pool_byte": 1}, "'pool_byte'"), ({"pool_bytes": 1 << 40}, "")):
        with pytest.raises(tern.TernError, match=match):
            Scheduler(config(daemon, **more))
    metrics = TieringOffloadingSpec.build_metric_definitions(config(daemon).extra_config)
    assert FAILURES in metrics
