"""tern.sglang with a host pool of NumPy arrays. tests/engines has SGLang's own pools, controller
and factory."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from daemons import Daemon, for_blocks

import tern

sys.path.insert(0, str(Path(__file__).parent / "stubs"))

from sglang.srt.mem_cache.hicache_storage import (  # noqa: E402
    HiCacheStorageConfig,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)

from tern import sglang as adapter  # noqa: E402

PAGE, PAGES, PIECES, PIECE = 4, 16, 3, 2000


class Indices(np.ndarray[Any, np.dtype[np.int64]]):
    def cpu(self) -> Indices:
        return self


class Pool:
    """Pages of PIECES separate pieces, as in a pool whose layers come first."""

    dtype, layout, start_layer, page_size, size = "bf16", "layer_first", 0, PAGE, PAGE * PAGES

    def __init__(self, seed: int = 0, linear: bool = True) -> None:
        self.kv_buffer = np.random.default_rng(seed).integers(0, 256, (PIECES, PAGES, PIECE), dtype=np.uint8)
        self.linear, self.asked = linear, 0

    def get_page_buffer_meta(self, indices: npt.NDArray[np.int64]) -> tuple[list[int], list[int]]:
        self.asked += 1
        pages = [int(i) // PAGE if self.linear else (int(i) // PAGE * 5 + 3) % PAGES for i in indices[::PAGE]]
        return [self.kv_buffer[piece, n].ctypes.data for n in pages for piece in range(PIECES)], [PIECE] * PIECES * len(pages)

    def page(self, n: int) -> npt.NDArray[np.uint8]:
        return self.kv_buffer[:, n if self.linear else (n * 5 + 3) % PAGES]


def indices(*pages: int) -> Any:
    return np.concatenate([np.arange(n * PAGE, (n + 1) * PAGE) for n in pages]).view(Indices)


def keys(n: int) -> list[str]:
    return [hashlib.sha256(str(i).encode()).hexdigest() for i in range(n)]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    yield from for_blocks(tmp_path, "8M")


def config(d: Daemon, **tern: Any) -> HiCacheStorageConfig:
    extra = {"interface_v1": 1, "tern": {"socket": d.socket, "pool_bytes": 1 << 20} | tern}
    return HiCacheStorageConfig(0, 1, 0, 1, 0, 1, False, True, False, "llama", extra_config=extra)


def opened(c: HiCacheStorageConfig, kv: Any, **sides: Any) -> adapter.TernHiCache:
    there = adapter.TernHiCache(c, {})
    there.register_mem_pool_host(kv)
    for name, pool in sides.items():
        there.register_mem_host_pool_v2(pool, PoolName(name))
    there.on_host_pools_registered()
    return there


@pytest.mark.parametrize("linear", [True, False])
def test_pages_come_back(daemon: Daemon, linear: bool) -> None:
    pool, two = Pool(1, linear), Pool(2, linear)
    there, again = opened(config(daemon), pool), opened(config(daemon), two)
    assert (there.pages["kv"].table is not None) == linear
    assert there.batch_set_v1(keys(3), indices(5, 0, 9)) == [True] * 3
    other = two.kv_buffer.copy()
    assert again.batch_exists(keys(4)) == 3
    assert again.batch_get_v1(keys(4), indices(2, 3, 4, 5)) == [True] * 3 + [False]
    for n, page in ((2, 5), (3, 0), (4, 9)):
        assert (two.page(n) == pool.page(page)).all()
    rest = [n for n in range(PAGES) if n not in (2, 3, 4)]
    assert all((two.page(n) == (other[:, n] if linear else other[:, (n * 5 + 3) % PAGES])).all() for n in rest)
    assert pool.asked == (1 if linear else 2)
    stats = again.get_stats()
    assert stats.prefetch_pgs == [3] and stats.backup_pgs == [] and there.get_stats().backup_pgs == [3]
    assert there.clear() and again.batch_exists(keys(1)) == 0


def test_pages_of_another_host_are_hits(daemons: tuple[Daemon, Daemon]) -> None:
    a, b = daemons
    pool, two, side = Pool(1), Pool(2), Pool(3)
    there, alone = opened(config(a), pool, swa=side), opened(config(b), Pool(4))
    any_host = opened(config(b, hosts="any"), two, swa=Pool(5))
    assert there.batch_set_v1(keys(3), indices(5, 0, 9)) == [True] * 3
    there.batch_set_v2([PoolTransfer(PoolName.SWA, indices(0), keys=keys(1))])
    assert alone.batch_exists(keys(4)) == 0 and any_host.batch_exists(keys(4)) == 3
    window = PoolTransfer(PoolName.SWA, keys=["x"], hit_policy=PoolHitPolicy.TRAILING_PAGES)
    assert any_host.batch_exists_v2(keys(4), [window]).restorable_prefix_pages == [1]
    assert any_host.batch_get_v1(keys(4), indices(2, 3, 4, 5)) == [True] * 3 + [False]
    assert all((two.page(n) == pool.page(page)).all() for n, page in ((2, 5), (3, 0), (4, 9)))
    assert alone.batch_exists(keys(4)) == 3  # the blocks that are now in this host's pool
    assert opened(config(b, hosts="host-a"), Pool(6)).batch_exists(keys(4)) == 3
    for hosts, match in (("host-c", "'host-c'"), (7, "hosts must be")):
        with pytest.raises(tern.Invalid, match=match):
            opened(config(b, hosts=hosts), Pool(6))


def test_what_is_there_by_policy(daemon: Daemon) -> None:
    there = opened(config(daemon), Pool(1), swa=Pool(2), indexer=Pool(3))
    there.batch_set_v1(keys(6), indices(*range(6)))
    for name, pages in (("swa", (1, 2, 4)), ("indexer", (0, 1, 2))):
        side = PoolTransfer(PoolName(name), indices(*pages), keys=[keys(6)[n] for n in pages])
        assert there.batch_set_v2([side]) == {name: [True] * 3}
    window = PoolTransfer(PoolName.SWA, keys=["x", "y"], hit_policy=PoolHitPolicy.TRAILING_PAGES)
    every = PoolTransfer(PoolName.INDEXER)
    groups = replace(every, hit_policy=PoolHitPolicy.BLOCK_GROUPS, block_pages=2, group_pages=1)
    for transfers, hit, restorable, hits in (
        ([], 6, [1, 2, 3, 4, 5, 6], {"kv": 6}),
        ([window], 3, [3], {"kv": 6, "swa": 3}),
        ([every], 3, [1, 2, 3], {"kv": 6, "indexer": 3}),
        ([every, window], 3, [3], {"kv": 6, "indexer": 3, "swa": 3}),
        ([groups], 6, [1, 2, 3, 4, 5, 6], {"kv": 6, "indexer": 4}),
    ):
        result = there.batch_exists_v2(keys(8), transfers)
        assert (result.kv_hit_pages, result.restorable_prefix_pages) == (hit, restorable)
        assert {str(name): n for name, n in result.extra_pool_hit_pages.items()} == hits


def test_sglangs_three_threads(daemon: Daemon) -> None:
    there, wrong = opened(config(daemon), Pool(1)), []

    def each(way: str) -> None:
        for _ in range(20):
            if way == "look up":
                wrong.extend([] if there.batch_exists(keys(12)) in range(13) else [way])
            elif way == "back up":
                wrong.extend([] if all(there.batch_set_v1(keys(12), indices(*range(12)))) else [way])
            else:  # into the pages that the blocks were stored from: no byte changes
                there.batch_get_v1(keys(12), indices(*range(12)))

    threads = [threading.Thread(target=each, args=(way,)) for way in ("look up", "back up", "prefetch")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and (there.pages["kv"].pool.kv_buffer == Pool(1).kv_buffer).all()
    assert not [what for what in there.store.counts if what.isupper() or "BUSY" in what], there.store.counts


def test_what_is_wrong_is_refused(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    c = config(daemon)
    for change, match in (
        ({"model_name": ""}, "served-model-name"),
        ({"extra_config": None}, '"tern"'),
        ({"extra_config": {"tern": {"socket": "x", "pool_bytes": 1, "bytes": 2}}}, "'bytes' is not a setting"),
        ({"dcp_size": 2}, "decode context"),
    ):
        with pytest.raises(tern.TernError, match=match):
            opened(replace(c, **change), Pool())
    with pytest.raises(tern.Invalid, match="2 pages of 4 tokens have 4 indices"):
        opened(c, Pool()).batch_get_v1(keys(2), indices(0))
    monkeypatch.setitem(adapter.NEEDS, PoolTransfer, ("hit_policy", "windows"))
    with pytest.raises(tern.Unsupported, match="PoolTransfer has no 'windows'"):
        opened(c, Pool())
