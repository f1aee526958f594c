"""Tern as HiCache storage of SGLang 0.5.23: `--hicache-storage-backend dynamic` with TernHiCache.

A page of a host pool is one block, K and V of all its layers together, whatever the pool's layout
is. libtern copies between the host pool and Tern's memory in one pass. SGLang has one thread that
looks up, one that prefetches and one that backs up; each call uses a set of blocks of its own
(tern.store). docs/blocks.md has the configuration.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)

from .blocks import Spans
from .errors import Invalid, Unsupported
from .layout import Namespace
from .store import Settings, Store, StoreSet, block_key

FORMAT = "sglang 1"  # of a block's content; after a change, blocks put before it are not found
NEEDS = {
    HiCacheStorageConfig: ("tp_rank", "tp_size", "pp_rank", "pp_size", "attn_cp_rank", "attn_cp_size", "dcp_size"),
    PoolTransfer: ("hit_policy", "host_indices", "keys", "block_pages", "group_pages"),
    PoolTransferResult: ("kv_hit_pages", "extra_pool_hit_pages", "restorable_prefix_pages"),
}


def check_version() -> None:
    """Raises Unsupported if this SGLang has another interface."""
    for cls, names in NEEDS.items():
        have = {f.name for f in dataclasses.fields(cls)}
        for name in names:
            if name not in have:
                raise Unsupported(f"tern.sglang is for SGLang 0.5.23, and this SGLang's {cls.__name__} has no {name!r}")


def _check(config: HiCacheStorageConfig) -> None:
    if not config.model_name:
        raise Invalid("SGLang names no model, so pages of several models would have equal keys: set --served-model-name")
    if config.dcp_size > 1:
        raise Unsupported(f"SGLang 0.5.23 supports decode context parallelism ({config.dcp_size}) only with its own back ends")


def _front(there: Sequence[bool]) -> int:
    return there.index(False) if False in there else len(there)


def _has_class(pool: object, name: str) -> bool:
    """Compares by name: the pools' modules load kernels, which a process without a GPU may lack."""
    return any(cls.__name__ == name for cls in type(pool).__mro__)


@dataclass(frozen=True)
class _Table:
    """The addresses of a host pool's pages: piece j of part p of page n lies at first[p, j] + n *
    stride[p, j]."""

    first: npt.NDArray[np.int64]
    stride: npt.NDArray[np.int64]


class _Pages:
    """The pages of one host pool. A page is one block, or one for each part if its heads are split
    for ranks of another TP size."""

    def __init__(self, pool: Any, parts: int) -> None:
        self.pool, self.parts = pool, parts
        self.page_size = int(getattr(pool, "page_size", 1) or 1)
        self.sets: list[StoreSet] = []  # one for each part
        self.flat = False  # True: the pool has no addresses, so pages are copied through buffers
        self.table: _Table | None = None
        try:
            self.sizes = self._measure()
        except (AssertionError, AttributeError, NotImplementedError, TypeError, ValueError):
            if parts > 1:
                raise
            self.flat, self.sizes = True, (int(pool.get_dummy_flat_data_page().nbytes),)

    def _measure(self) -> tuple[int, ...]:
        pages = int(self.pool.size) // self.page_size
        some = [0, 1, pages - 1] if pages > 2 else [0]
        indices: Any = np.concatenate([np.arange(self.page_size) + n * self.page_size for n in some])
        if torch := sys.modules.get("torch"):  # some pools compute with indices
            indices = torch.from_numpy(indices)
        at, sizes = self._ask(indices)
        if len(some) > 1 and getattr(self.pool, "shared_allocation_domain", None) is None:
            stride = at[1] - at[0]
            if np.array_equal(at[2], at[0] + stride * (pages - 1)):
                self.table = _Table(at[0], stride)
        return sizes

    def _ask(self, indices: Any) -> tuple[npt.NDArray[np.int64], tuple[int, ...]]:
        """Returns the addresses [page, part, piece] of pages, and the sizes of a part's pieces."""
        if self.parts > 1:
            pointers, sizes = self.pool.get_split_heads_page_buffer_meta(indices, self.parts)
        else:
            pointers, sizes = self.pool.get_page_buffer_meta(indices)
        pages = len(indices) // self.page_size
        at = np.array(pointers, np.int64).reshape(pages, self.parts, -1)
        all_sizes = np.array(sizes, np.int64).reshape(at.shape)
        if (all_sizes != all_sizes[0, 0]).any():
            raise Invalid(f"pages of the host pool {type(self.pool).__name__} have pieces of different sizes")
        return at, tuple(int(n) for n in all_sizes[0, 0])

    def addresses(self, indices: Any) -> npt.NDArray[np.int64]:
        """Returns addresses [page, part, piece], in bytes."""
        first = np.asarray(indices[:: self.page_size].cpu())
        if self.table and not (first % self.page_size).any():
            return self.table.first + (first // self.page_size)[:, None, None] * self.table.stride
        return self._ask(indices)[0]

    def find(self, keys: Sequence[bytes]) -> list[bool]:
        return _all([s.find(keys) for s in self.sets], len(keys))

    def get(self, keys: Sequence[bytes], indices: Any) -> list[bool]:
        if not self.flat:
            at = self.addresses(indices)
            return _all([s.get(keys, Spans(at[:, p], self.sizes)) for p, s in enumerate(self.sets)], len(keys))
        pages = [self.pool.get_dummy_flat_data_page() for _ in keys]
        got = self.sets[0].get(keys, _spans(pages))
        for ok, page, index in zip(got, pages, indices[:: self.page_size].tolist()):
            if ok:
                self.pool.set_from_flat_data_page(index, page)
        return got

    def put(self, keys: Sequence[bytes], indices: Any) -> list[bool]:
        if not self.flat:
            at = self.addresses(indices)
            return _all([s.put(keys, Spans(at[:, p], self.sizes)) for p, s in enumerate(self.sets)], len(keys))
        pages = [self.pool.get_data_page(i).contiguous() for i in indices[:: self.page_size].tolist()]
        return self.sets[0].put(keys, _spans(pages))


def _all(of_parts: list[list[bool]], n: int) -> list[bool]:
    return of_parts[0] if len(of_parts) == 1 else [all(part[i] for part in of_parts) for i in range(n)]


def _spans(tensors: Sequence[Any]) -> Spans:
    """Returns the addresses of tensors, which lie on the CPU and have one size."""
    for t in tensors:
        if t.device.type != "cpu" or not t.is_contiguous() or t.nbytes != tensors[0].nbytes:
            raise Invalid(f"values must be contiguous tensors of one size on the CPU, not {t.shape} on {t.device}")
    at = np.array([[t.data_ptr()] for t in tensors], np.uint64).reshape(len(tensors), 1)
    return Spans(at, (tensors[0].nbytes if len(tensors) else 0,))


class TernHiCache(HiCacheStorage):
    """SGLang's HiCache storage over Tern. SGLang creates it and makes the calls.

    Raises:
        TernError: the configuration is wrong, or this SGLang has another interface.
    """

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: dict[str, Any] | None = None) -> None:
        check_version()
        _check(storage_config)
        extra = storage_config.extra_config or {}
        if "tern" not in extra:
            raise Invalid('--hicache-storage-backend-extra-config has no "tern": {"socket": ..., "pool_bytes": ...}')
        self.config = storage_config
        self.store = Store(Settings.of(extra["tern"]))
        self.whole_pages = bool(extra.get("interface_v1", 0))  # SGLang calls batch_get_v1 and batch_set_v1
        self.pages: dict[str, _Pages] = {}  # by pool
        self._values: StoreSet | None = None  # for get() and set()
        self._attached = False
        self._moved: dict[str, list[tuple[int, float]]] = {"prefetch": [], "backup": []}  # pages, seconds

    # ---- registration ----

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        if mem_pool_host.kv_buffer is None:
            return  # it owns only indices: the pools of v2 have the pages
        self._register(PoolName.KV, mem_pool_host)
        if not self.whole_pages:
            size = int(mem_pool_host.get_dummy_flat_data_page().nbytes)
            self._values = self.store.of(self._namespace(PoolName.KV, mem_pool_host, "flat", 0, 1, (size,)), "kv", size)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        if host_pool_name == PoolName.KV:
            return  # it was registered first
        self._register(host_pool_name, host_pool)
        if self._attached:
            self._prepare(self.pages[host_pool_name])

    def on_host_pools_registered(self) -> None:
        """Opens the sets of all pools. Raises TernError if a configuration is wrong."""
        self._attached = True
        for pages in self.pages.values():
            self._prepare(pages)

    def _prepare(self, pages: _Pages) -> None:
        for one in pages.sets:
            self.store.prepare(one.namespace, one.group, one.value_bytes)

    def _register(self, name: str, pool: Any) -> None:
        parts = self.config.tp_lcm_size or 1
        parts = parts // self.config.tp_size if name == PoolName.KV and self.config.should_split_heads else 1
        pages = _Pages(pool, parts)
        for part in range(parts):
            form = "flat" if pages.flat else "pieces"
            namespace = self._namespace(name, pool, form, part, parts, pages.sizes)
            pages.sets.append(self.store.of(namespace, str(name), sum(pages.sizes)))
        self.pages[name] = pages

    def _namespace(self, name: str, pool: Any, form: str, part: int, parts: int, sizes: tuple[int, ...]) -> Namespace:
        """Returns the namespace: all that a page's bytes depend on beside its key.

        Ranks of TP share what is the same on all of them: MLA's pages, but not recurrent states or
        a draft model's heads.
        """
        c = self.config
        shared = c.is_mla_model and name != PoolName.MAMBA and not _has_class(pool, "MHATokenToKVPoolHost")
        rank = "" if shared else f" tp {c.tp_rank * parts + part}/{c.tp_size * parts}"
        shape = (pool.layout, getattr(pool, "page_size", 1), pool.start_layer if hasattr(pool, "start_layer") else 0, sizes)
        digest = hashlib.blake2b(repr((type(pool).__name__, form, shape)).encode(), digest_size=12).hexdigest()
        salt = f"{FORMAT} {digest}{rank} pp {c.pp_rank}/{c.pp_size} cp {c.attn_cp_rank}/{c.attn_cp_size}"
        return Namespace(model=str(c.model_name), kv_dtype=str(pool.dtype), salt=salt)

    # ---- pages of the KV pool ----

    def _kv(self) -> _Pages | None:
        return self.pages.get(PoolName.KV)

    def batch_exists(self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None) -> int:
        names = [block_key(key) for key in keys]
        if not self.whole_pages and self._values:
            return self._values.front(names)
        kv = self._kv()
        return _front(kv.find(names)) if kv else 0

    def batch_get_v1(
        self, keys: list[str], host_indices: Any, extra_info: HiCacheStorageExtraInfo | None = None
    ) -> list[bool]:
        return self._move("prefetch", self._kv(), keys, host_indices)

    def batch_set_v1(
        self, keys: list[str], host_indices: Any, extra_info: HiCacheStorageExtraInfo | None = None
    ) -> list[bool]:
        return self._move("backup", self._kv(), keys, host_indices)

    def _move(self, way: str, pages: _Pages | None, keys: Sequence[str], host_indices: Any) -> list[bool]:
        if pages is None:  # the KV pool owns only indices
            return [True] * len(keys)
        if len(host_indices) != len(keys) * pages.page_size:
            raise Invalid(f"{len(keys)} pages of {pages.page_size} tokens have {len(host_indices)} indices")
        begin, names = time.perf_counter(), [block_key(key) for key in keys]
        done = pages.get(names, host_indices) if way == "prefetch" else pages.put(names, host_indices)
        if self.config.enable_storage_metrics and pages is self._kv():
            self._moved[way].append((done.count(True), time.perf_counter() - begin))
        return done

    # ---- several pools ----

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        kv = self.batch_exists(keys, extra_info) if self._kv() else len(keys)
        hits: dict[str, int] = {PoolName.KV: kv} if kv else {}
        restorable = set(range(1, kv + 1))
        for transfer in pool_transfers or []:
            if not kv:
                break
            if transfer.hit_policy == PoolHitPolicy.BLOCK_GROUPS:
                hits[transfer.name] = self._covered(transfer, keys)
                continue
            there = self._of(transfer).find([block_key(key) for key in keys[:kv]])
            window = 0
            if transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                window = max(1, len(transfer.keys or ()))
            elif transfer.hit_policy != PoolHitPolicy.ALL_PAGES:
                raise Unsupported(f"tern.sglang does not support the policy {transfer.hit_policy!r}")
            run, ends = 0, set()
            for n, one in enumerate(there, 1):
                run = run + 1 if one else 0
                if run >= (min(window, n) if window else n):
                    ends.add(n)
            if ends:
                hits[transfer.name] = max(ends)
            restorable &= ends
        return PoolTransferResult(max(restorable, default=0), hits, sorted(restorable))

    def _covered(self, transfer: PoolTransfer, keys: list[str]) -> int:
        """Returns the number of pages of the KV pool that the leading whole groups cover.

        A block of `block_pages` pages is covered if its group of `group_pages` keys is there. The
        groups follow each other in the transfer's keys. If the transfer has no keys, a group is the
        first keys of its block. SGLang 0.5.23 has no pool of this policy.
        """
        block, group = transfer.block_pages, transfer.group_pages
        if block < 1 or group < 1:
            raise Invalid(f"{transfer.name}: groups of {group} pages for blocks of {block}")
        blocks = len(keys) // block
        given = transfer.keys or [k for b in range(blocks) for k in keys[b * block : b * block + group]]
        there = self._of(transfer).find([block_key(key) for key in given[: blocks * group]])
        return _front(there) // group * block

    def _of(self, transfer: PoolTransfer) -> _Pages:
        if transfer.name not in self.pages:
            raise Invalid(f"SGLang registered no host pool {transfer.name!r}; there are {', '.join(map(str, self.pages))}")
        return self.pages[transfer.name]

    def batch_get_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        return {t.name: self._move("prefetch", self._of(t), t.keys or [], t.host_indices) for t in transfers}

    def batch_set_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        return {t.name: self._move("backup", self._of(t), t.keys or [], t.host_indices) for t in transfers}

    # ---- tensors: SGLang's calls without interface_v1, with one more copy ----

    def _tensors(self) -> StoreSet:
        if self._values is None:
            raise Unsupported('tensors need an engine without "interface_v1", and it is set')
        return self._values

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any]:
        targets = list(target_locations or [None] * len(keys))
        targets = [self.mem_pool_host.get_dummy_flat_data_page() if t is None else t for t in targets]
        got = self._tensors().get([block_key(key) for key in keys], _spans(targets))
        return [t if ok else None for t, ok in zip(targets, got)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        tensors = [value.contiguous() for value in values]
        return all(self._tensors().put([block_key(key) for key in keys], _spans(tensors)))

    # ---- the rest ----

    def clear(self) -> bool:
        return self.store.reset()

    def get_stats(self) -> Any:
        if not self.config.enable_storage_metrics:
            return None
        from sglang.srt.observability.metrics_collector import StorageMetrics

        metrics, kv = StorageMetrics(), self._kv()
        page = sum(s.value_bytes for s in kv.sets) / (1 << 30) if kv else 0.0
        for way, pages, bandwidth in (
            ("prefetch", metrics.prefetch_pgs, metrics.prefetch_bandwidth),
            ("backup", metrics.backup_pgs, metrics.backup_bandwidth),
        ):
            moved, self._moved[way] = self._moved[way], []
            pages.extend(n for n, _ in moved)
            bandwidth.extend(n * page / seconds for n, seconds in moved if seconds > 0)
        return metrics

    def close(self) -> None:
        self.store.close()
