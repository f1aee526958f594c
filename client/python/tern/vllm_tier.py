"""Tern as a secondary tier of vLLM's OffloadingConnector (0.32): TernTier, for
TieringOffloadingSpec.

A chunk of the primary tier, with all groups and workers, is one block. The scheduler's calls only
fill lists and read answers. One thread looks up: at the end of a step it gets the step's keys in
one list, and lookup() returns RETRY for a key until the thread has answered. A few threads copy
between Tern's memory and the region that vLLM's workers share; loads precede stores.

vLLM 0.33 has the same methods and two more, whose defaults are right here: config_info, and
tolerates_off_thread_polling, which is for tiers that serve peers. The manager of vLLM 0.33 calls
from several threads, under a lock of its own. The tier's own lock is enough for either version.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from .blocks import Spans
from .errors import Invalid
from .layout import Namespace
from .store import LIST_MAX, Settings, Store, block_key

FORMAT = "vllm 1"  # of a block's content; after a change, blocks put before it are not found
TOUCHED_MAX = 4 * LIST_MAX  # chunks of one step that are marked as used
LOADS_FIRST, STORES_NEXT, END = 0, 1, 2
FAILURES = "vllm:kv_offload_tern_failures"

log = logging.getLogger("tern.vllm_tier")


def namespace_of(config: Any, row_bytes: int) -> Namespace:
    """Returns the namespace: all that a chunk's bytes depend on beside its key.

    The sizes of the parallelism are left out if vLLM declares the bytes the same under any.
    """
    p = config.parallel
    sizes = (p.world_size, p.tp_size, p.pp_size, p.pcp_size, p.dcp_size)
    if p.is_parallelism_agnostic or config.replicated_layout:
        sizes = (1, 1, 1, 1, 1)
    groups = tuple((g.group_id, g.tokens_per_block, tuple(g.layer_names)) for g in config.groups)
    layout = (config.kv_cache_layout, config.canonical_layout, config.replicated_layout)
    whole = (groups, config.cache.tokens_per_hash, config.cache.blocks_per_chunk, sizes, layout, row_bytes)
    digest = hashlib.blake2b(repr(whole).encode(), digest_size=16).hexdigest()
    return Namespace(model=config.model.name, kv_dtype=config.model.dtype, salt=f"{FORMAT} {digest}")


def hashes_differ() -> bool:
    """Returns whether this process's block hashes begin with a random seed: then no other process
    has the same hashes."""
    from vllm.v1.core import kv_cache_utils

    return "PYTHONHASHSEED" not in os.environ and kv_cache_utils.get_none_hash_seed() != getattr(
        kv_cache_utils, "DEFAULT_NONE_HASH_SEED", None
    )


@dataclass
class _Lookup:
    """A chunk that requests look up. It is kept until the last of them has finished and the answer
    has arrived."""

    there: bool | None = None  # None: no answer yet
    requests: set[str] = field(default_factory=set)


class TernTier(SecondaryTierManager):
    """A secondary tier over Tern. vLLM creates it and makes the calls."""

    medium: ClassVar[Medium | None] = Medium.CPU

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        copy_threads: int = 2,
        enable_kv_events: bool = False,
        locality: str | None = None,
        **tern: Any,
    ) -> None:
        """Creates the tier and starts its threads.

        Args:
            copy_threads: threads that copy chunks at the same time.
            enable_kv_events: emit events for stored chunks.
            tern: the fields of store.Settings.

        Raises:
            TernError: the configuration is wrong.
        """
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality) if locality is not None else None
        if copy_threads < 1:
            raise Invalid(f"copy_threads must be a number of at least 1, not {copy_threads}")
        tern.setdefault("sets_max", copy_threads + 1)
        rows = np.asarray(primary_kv_view)
        if rows.ndim != 2 or rows.itemsize != 1 or not rows.flags.c_contiguous:
            raise Invalid(f"vLLM's primary tier must be bytes [chunk, byte] without gaps, not {rows.shape} of {rows.dtype}")
        self._first, self._row = rows.ctypes.data, rows.shape[1]
        del rows  # vLLM releases the view, and no reference to it may remain then
        self._store = Store(Settings.of(tern))
        self._blocks = self._store.prepare(namespace_of(offloading_spec.config, self._row), "kv", self._row)
        self._lock = threading.Lock()
        self._lookups: dict[bytes, _Lookup] = {}
        self._by_request: dict[str, set[bytes]] = {}
        self._new: list[bytes] = []  # chunks to look up at the end of the step
        self._touched: dict[bytes, None] = {}  # chunks to mark as used at the end of the step
        self._events: list[OffloadingEvent] | None = [] if enable_kv_events and self._may_emit(offloading_spec) else None
        self._finished: list[JobResult] = []
        self._counted: dict[str, int] = {}  # failures that get_stats has returned
        self._off: bool | None = None  # hashes_differ(); None: no request has come yet
        self._asked: queue.SimpleQueue[tuple[list[bytes], list[bytes]] | None] = queue.SimpleQueue()
        self._jobs: queue.PriorityQueue[tuple[int, int, TransferJob | None]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._threads = [threading.Thread(target=self._look_up, name="tern-find", daemon=True)]
        self._threads += [threading.Thread(target=self._copy, name="tern-copy", daemon=True) for _ in range(copy_threads)]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _may_emit(spec: Any) -> bool:
        if not spec.kv_events_config.enable_kv_cache_events:
            log.warning("enable_kv_events of Tern's tier needs vLLM's kv_events_config, which is off")
            return False
        return True

    # ---- calls of the scheduler; none of them waits ----

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        if self._off is None:
            self._off = hashes_differ()
            if self._off:
                log.error(
                    "Tern's tier is off: block hashes begin with a random seed, so no other vLLM has the same. Use "
                    "--prefix-caching-hash-algo sha256, or the same PYTHONHASHSEED everywhere"
                )
                self._store.counts["seed INVALID"] += 1
        return RequestOffloadingContext()

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        if self._off:
            return LookupResult.MISS
        with self._lock:
            asked = self._lookups.get(key)
            if asked is None:
                asked = self._lookups[key] = _Lookup()
                self._new.append(key)
            asked.requests.add(req_context.req_id)
            self._by_request.setdefault(req_context.req_id, set()).add(key)
            if asked.there is None:
                return LookupResult.RETRY
            return LookupResult.HIT if asked.there else LookupResult.MISS

    def on_schedule_end(self, context: Any) -> None:
        with self._lock:
            new, self._new = self._new, []
            touched, self._touched = list(self._touched), {}
        if new or touched:
            self._asked.put((new, touched))

    def on_request_finished(self, req_context: Any) -> None:
        with self._lock:
            for key in self._by_request.pop(req_context.req_id, ()):
                asked = self._lookups[key]
                asked.requests.discard(req_context.req_id)
                if not asked.requests and asked.there is not None:
                    del self._lookups[key]

    def touch(self, keys: Collection[Any], req_context: Any) -> None:
        if not self._off:
            with self._lock:
                self._touched.update(dict.fromkeys(itertools.islice(keys, TOUCHED_MAX - len(self._touched))))

    def submit_store(self, job_metadata: TransferJob) -> None:
        if not self._off:
            return self._submit(STORES_NEXT, job_metadata)
        with self._lock:
            self._finished.append(JobResult(job_id=job_metadata.job_id, success=False))

    def submit_load(self, job_metadata: TransferJob) -> None:
        self._submit(LOADS_FIRST, job_metadata)

    def _submit(self, order: int, job: TransferJob) -> None:
        self._jobs.put((order, next(self._order), job))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        with self._lock:
            finished, self._finished = self._finished, []
        return finished

    def take_events(self) -> Iterable[OffloadingEvent]:
        with self._lock:
            events, self._events = self._events or [], None if self._events is None else []
        return events

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        text = "Calls of Tern that failed, by call and error; their chunks counted as missing."
        return {FAILURES: OffloadingCounterMetadata(documentation=text, labelnames=("what",))}

    def get_stats(self) -> Any:
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats

        stats = OffloadingConnectorStats()
        for what, n in list(self._store.counts.items()):
            if what.split()[-1].isupper() and (more := n - self._counted.get(what, 0)):
                self._counted[what] = n
                stats.increase_counter(FAILURES, more, (what,))
        return stats

    # ---- calls that may wait, for one deadline of a copy for each job under way ----

    def drain_jobs(self) -> None:
        self._jobs.join()

    def shutdown(self) -> None:
        """Closes the store. When this returns, nothing touches vLLM's region any more."""
        self._store.close()  # queued jobs find no connection
        self._asked.put(None)
        for _ in self._threads[1:]:
            self._jobs.put((END, next(self._order), None))
        for thread in self._threads:
            thread.join()

    # ---- the threads ----

    def _look_up(self) -> None:
        while lists := self._asked.get():
            new, touched = lists
            try:
                if touched:
                    self._blocks.touch([block_key(key) for key in touched])
                there = self._blocks.find([block_key(key) for key in new])
            except Exception:  # without an answer, the look-up would be RETRY in every step
                log.exception("Tern's tier failed because of a bug in it: a look-up of %d chunks", len(new))
                there = [False] * len(new)
            with self._lock:
                for key, one in zip(new, there):
                    asked = self._lookups[key]
                    asked.there = one
                    if not asked.requests:
                        del self._lookups[key]

    def _copy(self) -> None:
        while True:
            _, _, job = self._jobs.get()
            try:
                if job is None:
                    return
                try:
                    result = self._move(job)
                except Exception:  # vLLM waits for each job, and its chunks are pinned until then
                    log.exception("Tern's tier failed because of a bug in it: job %d", job.job_id)
                    result = JobResult(job_id=job.job_id, success=False)
                with self._lock:
                    self._finished.append(result)
            finally:
                self._jobs.task_done()

    def _move(self, job: TransferJob) -> JobResult:
        begin, keys = time.monotonic(), list(job.keys)
        rows = np.asarray(job.chunk_ids, np.uint64).reshape(-1, 1) * np.uint64(self._row) + np.uint64(self._first)
        names, spans = [block_key(key) for key in keys], Spans(rows, (self._row,))
        done = self._blocks.get(names, spans) if job.is_promotion else self._blocks.put(names, spans)
        moved = [key for key, ok in zip(keys, done) if ok]
        with self._lock:
            if job.is_promotion:  # so that the scheduler does not ask for the failed ones again and again
                for key, ok in zip(keys, done):
                    if not ok and key in self._lookups:
                        self._lookups[key].there = False
            elif moved and self._events is not None:
                event = OffloadingEvent(keys=moved, medium=Medium.CPU, removed=False, locality=self.locality)
                self._events.append(event)
        return JobResult(
            job_id=job.job_id,
            success=len(moved) == len(keys),
            successful_keys=tuple(moved) if job.is_promotion and 0 < len(moved) < len(keys) else None,
            transfer_time=time.monotonic() - begin,
            transfer_bytes=len(moved) * self._row,
        )
