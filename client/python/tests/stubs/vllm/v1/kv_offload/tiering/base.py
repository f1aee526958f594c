"""Stand-in for vLLM's module of that name."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from vllm.v1.kv_offload.base import LookupResult, Medium, OffloadingEvent, RequestOffloadingContext


@dataclass
class TransferJob:
    job_id: int
    keys: Collection[Any]
    chunk_ids: Any
    is_promotion: bool
    req_context: Any


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: Collection[Any] | None = None
    transfer_time: float | None = None
    transfer_bytes: int | None = None


class SecondaryTierManager:
    medium: ClassVar[Medium | None] = None
    locality: Any

    def __init__(
        self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str, backpressure_detector: Any = None
    ) -> None:
        self.tier_type = tier_type

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        raise NotImplementedError

    def submit_store(self, job_metadata: TransferJob) -> None:
        raise NotImplementedError

    def submit_load(self, job_metadata: TransferJob) -> None:
        raise NotImplementedError

    def get_finished_jobs(self) -> Iterable[JobResult]:
        raise NotImplementedError

    def has_pending_work(self) -> bool:
        return False

    def take_events(self) -> Iterable[OffloadingEvent]:
        return ()

    def touch(self, keys: Collection[Any], req_context: Any) -> None:
        pass

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        raise NotImplementedError

    def on_request_finished(self, req_context: Any) -> None:
        pass

    def serve_external_requests(self, parent: Any) -> None:
        pass

    def on_schedule_end(self, context: Any) -> None:
        pass

    def drain_jobs(self) -> None:
        raise NotImplementedError

    def shutdown(self) -> None:
        pass

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return {}

    def get_stats(self) -> Any:
        return None
