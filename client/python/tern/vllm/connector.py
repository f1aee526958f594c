"""vLLM's connector. Each method calls the scheduler's or the worker's side, which decide."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import vllm

from .settings import LOGGER, Settings, check_caller, check_config, check_version, settings

check_version(vllm.__version__)  # before the names below, which other releases do not have

from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (  # noqa: E402
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource  # noqa: E402

from ..layout import Namespace  # noqa: E402
from .jobs import Joined, Work  # noqa: E402
from .metrics import Since, TernMetrics, TernStats  # noqa: E402
from .pages import Layout, Tensor, layers_of, layout_of  # noqa: E402
from .pool import REJOIN_S, follow, join  # noqa: E402
from .scheduler import Request, Scheduler  # noqa: E402
from .worker import Worker, copier_of  # noqa: E402

log = logging.getLogger(LOGGER)


@dataclass
class TernMetadata(KVConnectorMetadata):
    """The work of a step, from the scheduler to the worker."""

    work: Work


@dataclass
class TernReport(KVConnectorWorkerMetadata):
    """The workers' report: steps whose saves are made, once for each rank, and workers that have
    joined the daemon anew."""

    saved: list[int] = field(default_factory=list)
    joined: list[Joined] = field(default_factory=list)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, TernReport)
        return TernReport(self.saved + other.saved, self.joined + other.joined)


OVERRIDES = ("hf_overrides", "hf_config_path")  # settings that make another model of the same weights


def namespace_of(config: Any, told: Settings, request: Request | None = None) -> Namespace:
    """Returns the namespace of a request's prefixes; for None, that of requests without adapter and
    salt."""
    model, lora = config.model_config, request.lora_request if request else None
    said = [repr(value) for value in (getattr(model, name, None) for name in OVERRIDES) if value]
    changed = hashlib.sha256(" ".join(said).encode()).hexdigest()[:16] if said else ""
    # vLLM scales all positions by the long factors or all by the short ones, as max_model_len
    # decides.
    longest = f"max_model_len={model.max_model_len}" if "longrope" in repr(_rope(model)) else ""
    return Namespace(
        model=str(model.model),
        revision="/".join(part for part in (model.revision, told.revision, changed, longest) if part),
        kv_dtype=f"{model.dtype}/{model.quantization}",
        lora=f"{lora.lora_name}={lora.lora_path}" if lora else "",
        salt=(request.cache_salt if request else None) or "",
    )


def _rope(model: Any) -> object:
    return getattr(model.hf_text_config, "rope_parameters", None)


def divided(config: Any) -> tuple[int, int]:
    """Returns the number of ranks, and of the model's KV heads over all ranks; 0 heads: those of
    the one rank."""
    ranks = int(config.parallel_config.tensor_parallel_size)
    return ranks, int(config.model_config.get_total_num_kv_heads()) if ranks > 1 else 0


class TernConnector(KVConnectorBase_V1, SupportsHMA):
    """Keeps whole blocks of prompts and answers in Tern, and loads them again. SupportsHMA: also
    for models with several groups of KV."""

    _cache_hit_source = CacheHitSource.HOST  # for vLLM's metrics; also for pages that a ticket fetched

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        check_caller(sys._getframe(1).f_code.co_qualname)
        super().__init__(vllm_config, role, kv_cache_config)
        check_config(vllm_config)
        transfer = vllm_config.kv_transfer_config
        told = settings(
            transfer.kv_connector_extra_config,
            transfer.engine_id,
            vllm_config.parallel_config.data_parallel_index,
        )
        self._rank: int = vllm_config.parallel_config.rank
        self._layout: Layout = layout_of(kv_cache_config, *divided(vllm_config))
        self._blocks: int = kv_cache_config.num_blocks
        self._scheduler: Scheduler | None = None
        self._worker: Worker | None = None
        self._told, self._since = told, Since()
        if role == KVConnectorRole.SCHEDULER:
            layout, pool = self._layout, join(told, self._layout, "scheduler", 0)
            log.info("tern: engine %s, pool %x of %d bytes, %s", told.engine, pool.handle, pool.nbytes, layout.words)
            naming = partial(namespace_of, vllm_config, told)
            log.info("tern: prefixes are those of %s", naming(None))
            self._scheduler = Scheduler(pool, layout, naming, partial(follow, told, layout))

    # ---- both sides

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        counted = self._scheduler.counts if self._scheduler else self._w().copied
        return self._since.stats(asdict(counted))

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return TernStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics | None:
        return TernMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # ---- the scheduler's side

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # blocks that were not saved are computed again

    def _s(self) -> Scheduler:
        assert self._scheduler is not None
        return self._scheduler

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        found = self._s().matched(request, num_computed_tokens)
        return found, bool(found)

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        self._s().allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        out = scheduler_output
        starts = {new.req_id: new.num_computed_tokens for new in out.scheduled_new_reqs}
        starts.update(zip(out.scheduled_cached_reqs.req_ids, out.scheduled_cached_reqs.num_computed_tokens))
        scheduled = {name: (start, start + out.num_scheduled_tokens[name]) for name, start in starts.items()}
        return TernMetadata(self._s().work(scheduled, out.kv_connector_block_state.get_block_ids))

    def update_connector_output(self, connector_output: Any) -> None:
        report = connector_output.kv_connector_worker_meta
        failed = connector_output.failed_recving or ()
        self._s().reported(report.saved if report else (), failed, report.joined if report else ())

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return False, self._s().finished(request)

    def reset_cache(self) -> bool | None:
        return self._s().reset()

    # ---- the worker's side

    def _w(self) -> Worker:
        assert self._worker is not None
        return self._worker

    def _work(self) -> Work:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, TernMetadata)
        return metadata.work

    def register_kv_caches(self, kv_caches: Mapping[str, Tensor]) -> None:
        layers = layers_of(self._layout, kv_caches, self._blocks)
        copier = partial(copier_of, layout=self._layout, layers=layers, blocks=self._blocks)
        joining = partial(join, self._told, self._layout, "worker", self._rank)
        self._worker = Worker(joining(), copier, partial(joining, REJOIN_S), self._rank)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._w().load(self._work())

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # loads are asynchronous

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        pass  # whole blocks are saved when all layers are computed

    def wait_for_save(self) -> None:
        self._w().save(self._work())

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        ended, failed = self._w().loaded()
        return KVConnectorTransferResults(finished_recving=ended, failed_recving=failed)

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        saved, joined = self._w().saved(), self._w().joined()
        return TernReport(saved, [joined] if joined else []) if saved or joined else None

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
        if self._scheduler is not None:
            self._scheduler.pool.connection.close()
