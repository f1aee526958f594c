"""SGLang's own host pools, controller and factory over tern.sglang, with tensors on the CPU."""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import dataclasses
import hashlib
import types
from typing import Any

import pytest
import torch
from daemons import Daemon
from sglang.srt.managers.cache_controller import HiCacheController, StorageOperation
from sglang.srt.mem_cache.device_pool_info import (
    KVBufferLayout,
    KVBuffers,
    MambaStateBufferInfo,
    MHABufferInfo,
    MLABufferInfo,
)
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorageConfig,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)
from sglang.srt.mem_cache.memory_pool_host import LogicalHostPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
from sglang.srt.mem_cache.pool_host.mha import AsymmetricMHATokenToKVPoolHost, MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

import tern
from tern.sglang import TernHiCache

PAGE, LAYERS, TOKENS, HEADS, DIM = 4, 3, 64, 4, 8
CPU = torch.device("cpu")


def mha(layout: str, heads: int = HEADS, v_dim: int = DIM, page: int = PAGE) -> Any:
    k = tuple(torch.zeros(TOKENS, heads, DIM, dtype=torch.bfloat16) for _ in range(LAYERS))
    v = tuple(torch.zeros(TOKENS, heads, v_dim, dtype=torch.bfloat16) for _ in range(LAYERS))
    table = torch.zeros(LAYERS, dtype=torch.int64)
    info = MHABufferInfo(
        buffers=KVBuffers(k=k, v=v, k_data_ptrs=table, v_data_ptrs=table, layout=next(iter(KVBufferLayout))),
        page_size=page, head_num=heads, head_dim=DIM, v_head_dim=v_dim, dtype=torch.bfloat16, device=CPU,
    )  # fmt: skip
    cls = MHATokenToKVPoolHost if v_dim == DIM else AsymmetricMHATokenToKVPoolHost
    with host_memory_budget_scope(1 << 30):
        return cls(
            info, 2.0, 0, page, layout, pin_memory=False, device_capacity_tokens=TOKENS, start_layer=0, end_layer=LAYERS
        )


def mla(layout: str) -> Any:
    buffers = tuple(torch.zeros(TOKENS, 1, 24, dtype=torch.bfloat16) for _ in range(LAYERS))
    info = MLABufferInfo(
        buffers=buffers, data_ptrs=torch.zeros(LAYERS, dtype=torch.int64), layer_indices=tuple(range(LAYERS)),
        device_layer_num=LAYERS, page_size=PAGE, kv_lora_rank=16, qk_rope_head_dim=8, kv_cache_dim=24,
        dtype=torch.bfloat16, device=CPU,
    )  # fmt: skip
    with host_memory_budget_scope(1 << 30):
        return MLATokenToKVPoolHost(
            info, 2.0, 0, PAGE, layout, pin_memory=False, device_capacity_tokens=TOKENS, start_layer=0, end_layer=LAYERS,
            target_layer_num=LAYERS,
        )  # fmt: skip


def mamba(layout: str) -> Any:
    info = MambaStateBufferInfo(
        temporal=torch.zeros(2, 16, 2, 4, 4), conv=(torch.zeros(2, 16, 6, 3, dtype=torch.bfloat16),)
    )
    with host_memory_budget_scope(1 << 30):
        return MambaPoolHost(info, 2.0, 0, device_capacity=16, pin_memory=False, layout=layout)


def buffers(pool: Any) -> list[Any]:
    """Returns the tensors that the pool's pages lie in."""
    if isinstance(pool, MambaPoolHost):
        return [pool.temporal_buffer, *pool.conv_buffer]
    return list(pool.kv_buffer) if isinstance(pool.kv_buffer, tuple) else [pool.kv_buffer]


def fill(pool: Any, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    for b in buffers(pool):
        b.copy_(torch.rand(b.shape))
    return [b.clone() for b in buffers(pool)]


def indices(pool: Any, pages: list[int]) -> Any:
    size = pool.page_size
    return torch.cat([torch.arange(p * size, (p + 1) * size) for p in pages])


def config(d: Daemon, hosts: str | None = None, **more: Any) -> Any:
    given: dict[str, Any] = {
        "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1,
        "is_mla_model": False, "enable_storage_metrics": False, "is_page_first_layout": False, "model_name": "llama",
        "extra_config": {
            "backend_name": "tern", "module_path": "tern.sglang", "class_name": "TernHiCache", "interface_v1": 1,
            "tern": {"socket": d.socket, "pool_bytes": 4 << 20, "hosts": hosts},
        },
    }  # fmt: skip
    return HiCacheStorageConfig(**(given | more))


def opened(c: Any, pool: Any, **sides: Any) -> TernHiCache:
    """Returns a TernHiCache, attached as SGLang's controllers attach it."""
    backend = StorageBackendFactory.create_backend("dynamic", c, pool)
    assert isinstance(backend, TernHiCache)
    backend.register_mem_pool_host(pool)
    for name, side in sides.items():
        backend.register_mem_host_pool_v2(side, PoolName(name))
    backend.on_host_pools_registered()
    return backend


def keys(n: int, of: str = "") -> list[str]:
    return [hashlib.sha256(f"{of}{i}".encode()).hexdigest() for i in range(n)]


POOLS: list[tuple[Any, str]] = [(mha, layout) for layout in ("layer_first", "page_first", "page_first_direct", "page_head")]
POOLS += [(mla, layout) for layout in ("layer_first", "page_first", "page_first_direct")]
POOLS += [(mamba, "page_first"), (mamba, "page_first_direct")]


@pytest.mark.parametrize(("make", "layout"), POOLS, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_pages_of_each_layout_come_back(daemon: Daemon, make: Any, layout: str) -> None:
    pool, c = make(layout), config(daemon, is_mla_model=make is mla)
    name = PoolName.MAMBA if make is mamba else PoolName.KV
    there = opened(c, mha(layout), mamba=pool) if make is mamba else opened(c, pool)
    assert there.pages[name].table is not None and not there.pages[name].flat
    before, ks, at = fill(pool, 1), keys(5), [9, 0, 7, 3, 12]
    set_: Any = there.batch_set_v1
    get: Any = there.batch_get_v1
    if make is mamba:
        set_ = lambda k, i: there.batch_set_v2([PoolTransfer(name, i, keys=k)])[name]  # noqa: E731
        get = lambda k, i: there.batch_get_v2([PoolTransfer(name, i, keys=k)])[name]  # noqa: E731
    assert set_(ks, indices(pool, at)) == [True] * 5
    # To the same pages; no other page is touched.
    fill(pool, 2)
    other = [b.clone() for b in buffers(pool)]
    assert get([*ks, keys(6)[5]], indices(pool, [*at, 5])) == [True] * 5 + [False]
    at_bytes = there.pages[name].addresses(indices(pool, at))
    for got, was, new in zip(buffers(pool), before, other):
        flat_got, flat_was, flat_new = (t.view(torch.uint8).flatten() for t in (got, was, new))
        ours = torch.zeros_like(flat_got, dtype=torch.bool)
        for page in at_bytes.reshape(-1, at_bytes.shape[-1]):
            for first, size in zip(page, there.pages[name].sizes):
                if 0 <= (off := int(first) - got.data_ptr()) < ours.numel():
                    ours[off : off + size] = True
        assert ours.any() and torch.equal(flat_got[ours], flat_was[ours]) and torch.equal(flat_got[~ours], flat_new[~ours])
    # To other pages of another engine's pool, compared as the pool itself reads a page.
    two = make(layout)
    again = opened(c, mha(layout), mamba=two) if make is mamba else opened(c, two)
    for b, was in zip(buffers(pool), before):
        b.copy_(was)
    transfer = PoolTransfer(name, indices(two, [1, 2, 3, 4, 5]), keys=ks)
    got_ok = again.batch_get_v2([transfer])[name]
    assert got_ok == [True] * 5
    for n, page in enumerate(at):
        mine = pool.get_data_page(page * pool.page_size, flat=True)
        assert torch.equal(two.get_data_page((n + 1) * two.page_size, flat=True), mine)


@pytest.mark.parametrize("hosts", ["any", "host-a"])
def test_pages_of_another_host_come_over(daemons: tuple[Daemon, Daemon], hosts: str) -> None:
    pool, two = mha("page_first"), mha("page_first")
    there, here = opened(config(daemons[0]), pool), opened(config(daemons[1], hosts), two)
    before, at = fill(pool, 1), [9, 0, 7]
    fill(two, 2)
    assert there.batch_set_v1(keys(3), indices(pool, at)) == [True] * 3
    assert here.batch_exists(keys(4)) == 3
    assert here.batch_get_v1(keys(4), indices(two, [1, 2, 3, 4])) == [True] * 3 + [False]
    for n, page in enumerate(at):
        assert torch.equal(two.kv_buffer[:, (1 + n) * PAGE : (2 + n) * PAGE], before[0][:, page * PAGE : (page + 1) * PAGE])
    with pytest.raises(tern.Invalid, match="'host-c'"):
        opened(config(daemons[1], "host-c"), two)


def test_values_of_different_heads_have_pieces_of_their_own(daemon: Daemon) -> None:
    pool = mha("page_first", v_dim=2 * DIM)
    there = opened(config(daemon), pool)
    before = fill(pool, 1)
    assert all(there.batch_set_v1(keys(3), indices(pool, [1, 2, 3])))
    fill(pool, 2)
    assert all(there.batch_get_v1(keys(3), indices(pool, [1, 2, 3])))
    for got, was in zip(buffers(pool), before):
        assert torch.equal(got[PAGE : 4 * PAGE], was[PAGE : 4 * PAGE])


def test_the_controller_writes_and_prefetches(daemon: Daemon) -> None:
    """The wheel's own loops of the backup thread and the prefetch thread, with and without
    interface_v1."""
    for v1 in (1, 0):
        c = config(daemon, enable_storage_metrics=True)
        c.extra_config["interface_v1"] = v1
        pool = mha("page_first")
        controller = HiCacheController.__new__(HiCacheController)
        controller.__dict__.update(
            page_size=PAGE, storage_host_pool=pool, mem_pool_host=pool, storage_backend=opened(c, pool),
            prefetch_sync_queue=types.SimpleNamespace(put=lambda ack: None),
        )  # fmt: skip
        zero = v1 == 1
        controller.page_get_func = controller._page_get_zero_copy if zero else controller._generic_page_get
        controller.page_set_func = controller._page_set_zero_copy if zero else controller._generic_page_set
        before, names, at = fill(pool, v1), keys(6, f"v{v1}"), indices(pool, [3, 5, 1, 8, 2, 4])
        backup = StorageOperation(at, list(range(6 * PAGE)), hash_value=names)
        controller._page_backup(backup)
        assert backup.completed_tokens == 6 * PAGE
        assert controller.storage_backend.batch_exists([*names, keys(1, "x")[0]]) == 6
        assert controller.storage_backend.exists(names[2]) and not controller.storage_backend.exists(keys(1, "x")[0])
        prefetch = types.SimpleNamespace(
            prefix_keys=None, hash_value=names, host_indices=indices(pool, [9, 10, 11, 12, 13, 14]), request_id="r",
            pool_transfers=None, is_terminated=lambda: False,
        )  # fmt: skip
        assert controller._page_transfer(prefetch) == 6
        for n, page in enumerate([3, 5, 1, 8, 2, 4]):
            a, b = (9 + n) * PAGE, page * PAGE
            assert torch.equal(pool.kv_buffer[:, a : a + PAGE], before[0][:, b : b + PAGE])
        if v1:
            stats = controller.storage_backend.get_stats()
            assert stats.prefetch_pgs == [6] and stats.backup_pgs == [6] and stats.prefetch_bandwidth[0] > 0
            assert controller.storage_backend.get_stats().prefetch_pgs == []


def test_policies_of_several_pools(daemon: Daemon) -> None:
    kv, state = mha("page_first"), mamba("page_first")
    there = opened(config(daemon), kv, mamba=state, swa=mha("page_first"), indexer=mla("page_first"))
    names = keys(8)
    assert all(there.batch_set_v1(names[:7], indices(kv, list(range(7)))))

    def put(pool: str, which: list[int]) -> None:
        host = there.pages[pool].pool
        transfer = PoolTransfer(PoolName(pool), indices(host, which), keys=[names[i] for i in which])
        assert there.batch_set_v2([transfer]) == {pool: [True] * len(which)}

    def ask(*transfers: PoolTransfer) -> tuple[int, dict[str, int], Any]:
        r = there.batch_exists_v2(names, list(transfers))
        return r.kv_hit_pages, {str(k): v for k, v in r.extra_pool_hit_pages.items()}, r.restorable_prefix_pages

    tail, every = PoolHitPolicy.TRAILING_PAGES, PoolHitPolicy.ALL_PAGES
    assert ask() == (7, {"kv": 7}, [1, 2, 3, 4, 5, 6, 7])
    put("mamba", [1, 4])
    assert ask(PoolTransfer(PoolName.MAMBA, keys=["x"], hit_policy=tail)) == (5, {"kv": 7, "mamba": 5}, [2, 5])
    put("indexer", [0, 1, 2, 5])
    assert ask(PoolTransfer(PoolName.INDEXER, hit_policy=every)) == (3, {"kv": 7, "indexer": 3}, [1, 2, 3])
    put("swa", [2, 3, 4])
    two = PoolTransfer(PoolName.SWA, keys=["x", "y"], hit_policy=tail)
    assert ask(two) == (5, {"kv": 7, "swa": 5}, [4, 5])
    both = ask(two, PoolTransfer(PoolName.MAMBA, keys=["x"], hit_policy=tail))
    assert both == (5, {"kv": 7, "swa": 5, "mamba": 5}, [5])
    assert ask(two, PoolTransfer(PoolName.INDEXER, hit_policy=every))[0] == 0
    # A window that begins before the span: the requested pages have to be there.
    put("swa", [0])
    assert ask(two)[2] == [1, 4, 5]
    groups = PoolTransfer(PoolName.INDEXER, hit_policy=PoolHitPolicy.BLOCK_GROUPS, block_pages=2, group_pages=1)
    assert ask(groups) == (7, {"kv": 7, "indexer": 4}, [1, 2, 3, 4, 5, 6, 7])  # pages 0 and 2, not 4
    with pytest.raises(tern.Invalid, match="no host pool"):
        ask(PoolTransfer(PoolName.DRAFT))


def test_a_pool_that_owns_indices_alone(daemon: Daemon) -> None:
    anchor, side = LogicalHostPool(TOKENS, PAGE), mla("page_first")
    there = opened(config(daemon, is_mla_model=True), anchor, indexer=side)
    names = keys(3)
    assert there.batch_set_v1(names, indices(side, [0, 1, 2])) == [True] * 3
    assert there.batch_exists_v2(names, [PoolTransfer(PoolName.INDEXER)]).kv_hit_pages == 0
    assert all(there.batch_set_v2([PoolTransfer(PoolName.INDEXER, indices(side, [0, 1]), keys=names[:2])])["indexer"])
    assert there.batch_exists_v2(names, [PoolTransfer(PoolName.INDEXER)]).kv_hit_pages == 2


def test_what_differs_is_kept_apart_and_what_is_equal_is_shared(daemon: Daemon) -> None:
    base = config(daemon, tp_size=2)
    pool = mha("page_first")
    fill(pool, 1)
    assert all(opened(base, pool).batch_set_v1(keys(2), indices(pool, [0, 1])))
    for change in (
        {"tp_rank": 1}, {"tp_size": 4}, {"pp_rank": 1, "pp_size": 2}, {"attn_cp_rank": 1, "attn_cp_size": 2},
        {"model_name": "b"},
    ):  # fmt: skip
        assert opened(dataclasses.replace(base, **change), pool).batch_exists(keys(2)) == 0, change
    assert opened(base, mha("page_first_direct")).batch_exists(keys(2)) == 0
    assert opened(base, mha("page_first", heads=2)).batch_exists(keys(2)) == 0
    assert opened(base, mha("page_first", heads=2, page=2 * PAGE)).batch_exists(keys(2)) == 0  # pages of equal size
    assert opened(dataclasses.replace(base, dp_rank=1), mha("page_first")).batch_exists(keys(2)) == 2
    # MLA's pages are the same on all ranks; a recurrent state and a draft model's heads are not.
    latent = dataclasses.replace(base, is_mla_model=True)
    pools = {"mamba": mamba("page_first"), "draft": mha("page_first"), "indexer": mla("page_first")}
    one = opened(latent, mla("page_first"), **pools)
    two = opened(dataclasses.replace(latent, tp_rank=1), mla("page_first"), **pools)
    for name, shared in (("kv", True), ("indexer", True), ("mamba", False), ("draft", False)):
        host = one.pages[name].pool
        transfer = PoolTransfer(PoolName(name), indices(host, [0]), keys=keys(1))
        assert one.batch_set_v2([transfer])[name] == [True]
        assert two.batch_get_v2([transfer])[name] == [shared], name


def test_heads_that_are_split_serve_another_tp_size(daemon: Daemon) -> None:
    whole = mha("page_head", heads=4)
    split = config(daemon, tp_size=1, tp_lcm_size=2, should_split_heads=True)
    one = opened(split, whole)
    before = fill(whole, 1)[0]
    assert one.pages["kv"].parts == 2 and all(one.batch_set_v1(keys(3), indices(whole, [2, 4, 6])))
    assert one.batch_exists(keys(4)) == 3
    for rank in (0, 1):
        half = mha("page_head", heads=2)
        there = opened(config(daemon, tp_rank=rank, tp_size=2, tp_lcm_size=2), half)
        assert there.batch_get_v1(keys(3), indices(half, [1, 2, 3])) == [True] * 3
        for n, page in enumerate((2, 4, 6)):  # [k or v, page, head, token, layer, dim]
            assert torch.equal(half.kv_buffer[:, n + 1], before[:, page, 2 * rank : 2 * rank + 2])


def test_tensors_in_and_out(daemon: Daemon) -> None:
    c = config(daemon)
    c.extra_config["interface_v1"] = 0
    pool = mha("layer_first")
    there = opened(c, pool)
    page = torch.rand(2, LAYERS, PAGE, HEADS, DIM).to(torch.bfloat16).flatten()
    assert there.set("some key", page) and there.exists("some key") and not there.exists("another")
    assert torch.equal(there.get("some key"), page)
    into = torch.zeros_like(page)
    assert there.get("some key", into) is into and torch.equal(into, page)
    assert there.get("another") is None and there.batch_set(keys(2), [page, page])
    assert [t is None for t in there.batch_get([*keys(2), "x"])] == [False, False, True]
    assert not there.set("short", page[:8]) and there.store.counts["put INVALID"] == 1
    assert there.clear() and there.batch_exists(keys(2)) == 0
    there.close()
    assert there.batch_exists(keys(2)) == 0


def test_what_is_wrong_is_refused_by_name(daemon: Daemon) -> None:
    pool = mha("page_first")
    c = config(daemon)
    for change, match in (
        ({"model_name": None}, "served-model-name"),
        ({"extra_config": {**c.extra_config, "tern": {"socket": "x"}}}, "pool_bytes"),
        ({"extra_config": {k: v for k, v in c.extra_config.items() if k != "tern"}}, '"tern"'),
        ({"dcp_size": 2, "is_mla_model": True, "tp_size": 2, "logical_page_size": 8}, "decode context"),
    ):
        with pytest.raises(tern.TernError, match=match):
            opened(dataclasses.replace(c, **change), pool)
    c.extra_config["tern"] = c.extra_config["tern"] | {"pool_bytes": 1 << 30}
    with pytest.raises(tern.Quota):
        opened(c, pool)
    c.extra_config["tern"] = c.extra_config["tern"] | {"pool_bytes": {"kv": 1 << 20}}
    with pytest.raises(tern.Invalid, match="'mamba'"):
        opened(c, pool, mamba=mamba("page_first"))
    there = opened(config(daemon), pool)
    with pytest.raises(tern.Invalid, match="indices"):
        there.batch_set_v1(keys(2), indices(pool, [0]))
    daemon.process.kill()
    daemon.process.wait()
    assert there.batch_exists(keys(2)) == 0 and there.batch_get_v1(keys(2), indices(pool, [0, 1])) == [False] * 2
    assert there.batch_set_v1(keys(2), indices(pool, [0, 1])) == [False] * 2
