"""A small model of vLLM around the real connector: its scheduler, its worker and its KV, without a
model. The KV of a token is a function of all tokens up to it. For a model with a window, blocks
that have left the window are assigned anew, as in vLLM. For states it has the block that the step
writes, and the one that it reads. `stubs` has the parts of vLLM that the connector imports."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent / "stubs"))

from tern import Namespace  # noqa: E402
from tern.vllm.connector import TernConnector  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole  # noqa: E402

BLOCK, HEADS, CONTENT, BLOCKS, LAYERS = 16, 2, 8, 64, ("l0", "l1")
WINDOW = 40  # vLLM's count, which includes the reading token


class FullAttentionSpec:
    block_size, num_heads, dtype = BLOCK, HEADS, SimpleNamespace(itemsize=2)
    state_content_size_bytes = 2 * CONTENT
    page_size_bytes = BLOCK * HEADS * CONTENT * 2
    page_size_padded: int | None = None
    tokens_per_state = 1
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    non_causal = False
    kv_quant_mode = SimpleNamespace(value=0)


class SlidingWindowSpec(FullAttentionSpec):
    def __init__(self, window: int = WINDOW) -> None:
        self.sliding_window, self.extra_retained_tokens = window, 0


def long_blocks(spec: Any) -> Any:
    """Returns the spec with half the heads and twice the tokens a block: as many bytes."""
    spec.block_size, spec.num_heads = 2 * BLOCK, HEADS // 2
    return spec


class MambaSpec:
    """States of linear attention, at the front of blocks that are as large as the others."""

    block_size, num_heads, shapes, dtypes = BLOCK, 1, ((3, 20), (10,)), ("bfloat16", "float32")
    state_content_size_bytes, page_size_bytes = 160, FullAttentionSpec.page_size_bytes
    mamba_type = SimpleNamespace(name="GDN_ATTN")
    mamba_cache_mode = "align"
    num_speculative_blocks = num_prefill_checkpoint_blocks = 0
    sliding_window = 2  # vLLM's count: the next token reads the block of the last one


def cache_config(*specs: object) -> SimpleNamespace:
    """Returns a KVCacheConfig: the first group has the layers l0 and l1, the second l2 and l3."""
    groups = [
        SimpleNamespace(kv_cache_spec=spec, layer_names=[f"l{2 * i}", f"l{2 * i + 1}"], enable_kv_transfer=True)
        for i, spec in enumerate(specs or [FullAttentionSpec()])
    ]
    return SimpleNamespace(num_blocks=BLOCKS, kv_cache_groups=groups, kv_cache_layout="LBHNC")


HYBRID = (SlidingWindowSpec(), FullAttentionSpec(), SlidingWindowSpec())  # as in Gemma
LINEAR = (MambaSpec(), MambaSpec(), FullAttentionSpec())  # as in Qwen3-Next


def of_rank(spec: Any, ranks: int) -> Any:
    """Returns the part of the spec that one of several ranks has."""
    if ranks == 1:
        return spec
    part = copy(spec)
    part.num_heads, part.page_size_bytes = max(1, spec.num_heads // ranks), spec.page_size_bytes // ranks
    return part


def vllm_config(socket: str, name: str = "a", ranks: int = 1, rank: int = 0, **extra: object) -> SimpleNamespace:
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_load_failure_policy="recompute",
            kv_role="kv_both",
            engine_id=name,
            kv_connector_extra_config={"socket": socket, "pool_bytes": "1M", **extra},
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=ranks,
            rank=rank,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            data_parallel_index=0,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            nnodes=1,
        ),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        model_config=SimpleNamespace(
            is_multimodal_model=False,
            is_diffusion=False,
            is_prefix_caching_supported=True,
            hf_text_config=SimpleNamespace(rope_parameters={"rope_type": "default"}),
            max_model_len=4096,
            model="tiny",
            revision=None,
            dtype="bfloat16",
            quantization=None,
            get_total_num_kv_heads=lambda: HEADS,
        ),
        speculative_config=None,
    )


class HostTensor:
    """An array with the interface of a torch.Tensor."""

    def __init__(self, array: npt.NDArray[Any], dtype: object = FullAttentionSpec.dtype, device: str = "cpu") -> None:
        dtype = "torch.int8" if array.itemsize == 1 else dtype
        self.array, self.dtype = array, dtype
        self.device: Any = SimpleNamespace(type=device)

    @property
    def shape(self) -> Sequence[int]:
        return self.array.shape

    def stride(self) -> Sequence[int]:
        return [s // self.array.itemsize for s in self.array.strides]

    def element_size(self) -> int:
        return self.array.itemsize

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)


@dataclass
class Asked:
    """vLLM's Request."""

    request_id: str
    all_token_ids: list[int]
    cache_salt: str | None = None
    lora_request: Any = None
    mm_features: Sequence[object] = ()
    prompt_embeds: Any = None
    kv_transfer_params: dict[str, Any] | None = None
    skip_reading_prefix_cache: bool = False
    status: Any = None
    num_computed_tokens: int = 0
    blocks: list[list[int]] = field(default_factory=list)  # by group; 0: the block has left the window

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


def kv_of(tokens: Sequence[int], layer: int, heads: int) -> npt.NDArray[np.uint16]:
    """Returns KV of shape (token, head, content), in which each token depends on all before it."""
    sums = np.cumsum(np.asarray(tokens, np.uint64) * np.arange(1, len(tokens) + 1, dtype=np.uint64))
    rows = (np.arange(heads * CONTENT, dtype=np.uint64) + np.uint64(layer * HEADS * CONTENT)).reshape(1, heads, CONTENT)
    mixed = (sums[:, None, None] + rows * np.uint64(257)) % np.uint64(65521)
    kv: npt.NDArray[np.uint16] = mixed.astype(np.uint16)
    return kv


def state_of(tokens: Sequence[int], layer: int) -> npt.NDArray[np.uint8]:
    mixed = sum(token * (i + 1) for i, token in enumerate(tokens)) + 31 * layer + len(tokens)
    state: npt.NDArray[np.uint8] = (mixed * np.arange(1, MambaSpec.state_content_size_bytes + 1) % 251).astype(np.uint8)
    return state


def is_state(spec: Any) -> bool:
    return isinstance(spec, MambaSpec)


class Rank:
    """A worker, and the KV of its heads."""

    def __init__(self, config: Any, caches: Any) -> None:
        self.at, ranks = config.parallel_config.rank, config.parallel_config.tensor_parallel_size
        self.connector = TernConnector(config, KVConnectorRole.WORKER, caches)
        # Layer i of every group uses the same bytes.
        self.shared = [np.zeros((BLOCKS, HEADS // ranks, BLOCK, CONTENT), np.uint16) for _ in LAYERS]
        self.kv = [[self.view(a, group.kv_cache_spec) for a in self.shared] for group in caches.kv_cache_groups]
        self.connector.register_kv_caches(
            {
                layer: HostTensor(array)
                for group, arrays in zip(caches.kv_cache_groups, self.kv)
                for layer, array in zip(group.layer_names, arrays)
            }
        )

    @staticmethod
    def view(shared: npt.NDArray[np.uint16], spec: Any) -> npt.NDArray[Any]:
        if is_state(spec):
            rows = shared.reshape(BLOCKS, 1, 1, -1).view(np.uint8)
            return rows[..., : spec.state_content_size_bytes]
        return shared.reshape(BLOCKS, spec.num_heads, spec.block_size, CONTENT)

    def part(self, tokens: Sequence[int], layer: int, ranks: int) -> npt.NDArray[np.uint16]:
        """Returns the KV that a model computes for this rank's heads."""
        heads = self.kv[layer // 2][layer % 2].shape[1]
        return kv_of(tokens, layer, heads * ranks)[:, self.at * heads : (self.at + 1) * heads]


class Instance:
    """vLLM: both sides of the connector, its blocks, and a scheduler that runs the given
    requests."""

    def __init__(self, socket: str, name: str = "a", specs: Sequence[Any] = (), ranks: int = 1) -> None:
        caches = cache_config(*(of_rank(spec, ranks) for spec in specs or [FullAttentionSpec()]))
        self.specs = [group.kv_cache_spec for group in caches.kv_cache_groups]
        with ThreadPoolExecutor(ranks) as starting:  # each worker waits for the others
            self.ranks = list(starting.map(lambda at: Rank(vllm_config(socket, name, ranks, at), caches), range(ranks)))
        self.worker, self.shared, self.kv = self.ranks[0].connector, self.ranks[0].shared, self.ranks[0].kv
        self.scheduler = TernConnector(vllm_config(socket, name, ranks), KVConnectorRole.SCHEDULER, caches)
        self.free = list(range(1, BLOCKS))
        self.loading: dict[str, Asked] = {}
        self.received: Counter[str] = Counter()  # by request: number of ranks whose load has ended
        self.failed: set[str] = set()

    def admit(self, r: Asked) -> int:
        """Asks what Tern has, and assigns blocks. Returns the number of tokens that are being
        loaded."""
        for _ in range(10_000):
            found, later = self.scheduler.get_num_new_matched_tokens(r, r.num_computed_tokens)
            if found is not None:
                break
            time.sleep(0.001)  # a fetch is under way; vLLM asks again in its next step
        assert found is not None and later == (found > 0)
        self.give(r, r.num_computed_tokens + found, r.num_tokens)
        tables = tuple(list(table) for table in r.blocks)
        self.scheduler.update_state_after_alloc(r, SimpleNamespace(get_block_ids=lambda: tables), found)
        if found:
            r.num_computed_tokens += found
            self.loading[r.request_id] = r
        return found

    def first(self, group: int, computed: int) -> int:
        """Returns the first block that the token behind `computed` ones reads."""
        window = self.specs[group].sliding_window
        return max(computed + 1 - window, 0) // self.specs[group].block_size if window else 0

    def give(self, r: Asked, computed: int, tokens: int) -> None:
        """Assigns blocks for `tokens` tokens, of which `computed` are computed, and frees those that
        have left the window."""
        r.blocks = r.blocks or [[] for _ in self.specs]
        for group, table in enumerate(r.blocks):
            n, first = self.specs[group].block_size, self.first(group, computed)
            for i in range(min(first, len(table))):
                self.put(table[i])
                table[i] = 0
            if is_state(self.specs[group]):  # the block that is read, and the one that is written
                last = -(-tokens // n) - 1
                table += [0] * (last + 1 - len(table))
                for i in {first, last} if computed else {last}:
                    table[i] = table[i] or self.free.pop(0)
            while len(table) * n < tokens:
                table.append(0 if len(table) < first else self.free.pop(0))

    def put(self, block: int) -> None:
        if block:
            self.free.insert(0, block)
            for layer in (layer for rank in self.ranks for layer in rank.shared):
                layer[block] = 0xFFFF  # the next owner finds this

    def step(self, *running: Asked, tokens: int = 0, fails: bool = False) -> set[str]:
        """Computes the next `tokens` tokens of these requests; 0: all. Returns the requests whose
        load has ended. fails: the worker raises, so the scheduler gets no output."""
        counts = {r.request_id: min(tokens or r.num_tokens, r.num_tokens - r.num_computed_tokens) for r in running}
        for r in running:
            self.give(r, r.num_computed_tokens, r.num_computed_tokens + counts[r.request_id])
        tables = {r.request_id: tuple(list(table) for table in r.blocks) for r in running}
        out = SimpleNamespace(
            scheduled_new_reqs=[],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[r.request_id for r in running], num_computed_tokens=[r.num_computed_tokens for r in running]
            ),
            num_scheduled_tokens=counts,
            kv_connector_block_state=SimpleNamespace(get_block_ids=tables.get),
        )
        work = self.scheduler.build_connector_meta(out)
        for r in running:
            self.compute(r, r.num_computed_tokens + counts[r.request_id])
        for rank in self.ranks:
            rank.connector.bind_connector_metadata(work)
            rank.connector.start_load_kv(None)
            rank.connector.wait_for_save()
        if fails:
            return set()
        return self.report()

    def report(self) -> set[str]:
        """Merges the reports of all ranks as vLLM does: a load has ended if it has on every rank,
        and has failed if it failed on one of them."""
        told: Any = None
        for w in (rank.connector for rank in self.ranks):
            results = w.get_transfer_results(set())
            self.received.update(results.finished_recving)
            self.failed |= results.failed_recving
            own = w.build_connector_worker_meta()
            told = told.aggregate(own) if told and own else told or own
            w.clear_connector_metadata()
        ended = {name for name, n in self.received.items() if n == len(self.ranks)}
        failed, self.failed = self.failed & ended, self.failed - ended
        self.scheduler.update_connector_output(SimpleNamespace(kv_connector_worker_meta=told, failed_recving=failed))
        for name in ended:
            del self.received[name]
            r = self.loading.pop(name)
            if name in failed:
                self.drop(r)
        return ended

    def compute(self, r: Asked, end: int) -> None:
        for rank in self.ranks:
            for group in range(len(r.blocks)):
                self.compute_group(rank, r, group, end)
        r.num_computed_tokens = end

    def compute_group(self, rank: Rank, r: Asked, group: int, end: int) -> None:
        table, n = r.blocks[group], self.specs[group].block_size
        for layer, array in enumerate(rank.kv[group], 2 * group):
            if is_state(self.specs[group]):
                array[table[(end - 1) // n], 0, 0] = state_of(r.all_token_ids[:end], layer)
                continue
            kv = rank.part(r.all_token_ids, layer, len(self.ranks))
            for t in range(max(r.num_computed_tokens, table.count(0) * n), end):
                array[table[t // n], :, t % n, :] = kv[t]

    def holds(self, r: Asked, tokens: int) -> bool:
        """Returns whether the request's blocks have what a model would have computed, as far as the
        next token reads them."""
        return all(self.holds_group(rank, r, i, tokens) for rank in self.ranks for i in range(len(r.blocks)))

    def holds_group(self, rank: Rank, r: Asked, group: int, tokens: int) -> bool:
        table, n, first = r.blocks[group], self.specs[group].block_size, self.first(group, tokens)
        for layer, array in enumerate(rank.kv[group], 2 * group):
            if is_state(self.specs[group]):
                at = table[(tokens - 1) // n] if tokens else 0
                if tokens and (at == 0 or (array[at, 0, 0] != state_of(r.all_token_ids[:tokens], layer)).any()):
                    return False
                continue
            kv = rank.part(r.all_token_ids, layer, len(self.ranks))
            for t in range(first * n, tokens):
                if table[t // n] == 0 or (array[table[t // n], :, t % n, :] != kv[t]).any():
                    return False
        return True

    def loaded(self) -> None:
        """Runs steps without requests until nothing is being loaded."""
        for _ in range(10_000):
            if not self.loading:
                return
            self.step()
        raise AssertionError(f"loads do not end: {self.loading}")

    def drop(self, r: Asked) -> None:
        """Takes the request's blocks away, as when it is preempted."""
        for table in r.blocks:
            for block in table:
                self.put(block)
        r.blocks, r.num_computed_tokens = [], 0

    def begins_again(self, r: Asked, depth: int) -> None:
        """Preempts a request: `depth` of its tokens are loaded, the rest is computed, and it
        ends."""
        self.drop(r)
        assert self.admit(r) == depth
        self.loaded()
        assert self.holds(r, depth)
        self.step(r)
        self.finish(r)

    def finish(self, r: Asked, status: str = "FINISHED_LENGTH_CAPPED") -> dict[str, Any] | None:
        r.status = SimpleNamespace(name=status)
        later, told = self.scheduler.request_finished_all_groups(r, tuple(r.blocks))
        assert not later
        self.drop(r)
        return told

    def close(self) -> None:
        self.scheduler.shutdown()
        for rank in self.ranks:
            rank.connector.shutdown()


def forget(one: Instance) -> None:
    """Removes what another test left in the pool, which outlives it."""
    for parts in ({}, {"salt": "salty"}, {"lora": "x=/x"}):
        ns = Namespace(model="tiny", kv_dtype="bfloat16/None", **parts)
        one.scheduler._s().pool.connection.namespace_reset(ns)


def pages(one: Instance, where: str, group: int = 0) -> int:
    pool = one.scheduler._s().pool
    rows = [row for row in pool.connection.stats()["pools"] if int(row["pool"], 16) == pool.handle]
    return int(rows[group][where])


def run(one: Instance, name: str, prompt: list[int], **more: Any) -> tuple[Asked, int]:
    """Runs a request from its start to its end. Returns it, and the number of tokens that were
    loaded for it."""
    r = Asked(name, list(prompt), **more)
    found = one.admit(r)
    one.loaded()
    assert one.holds(r, r.num_computed_tokens)
    one.step(r)
    one.finish(r)
    return r, found
