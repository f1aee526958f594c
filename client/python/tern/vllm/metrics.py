"""Counters for vLLM: in its log every few seconds, and at /metrics as `vllm:tern_..._total`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

COUNTERS = {
    "queried": "Prompt tokens that Tern was asked for",
    "matched": "Prompt tokens that Tern has",
    "loaded": "Tokens whose blocks were copied from Tern",
    "saved": "Tokens whose blocks were copied to Tern",
    "copies": "Blocks that were copied, from Tern and to it",
    "bytes": "Bytes of these copies",
    "recomputed": "Tokens that a load or a ticket should have delivered and did not, so vLLM computed them",
    "full": "Saves that found no room in the pool, and were retried",
    "failed": "Loads that failed, so vLLM computed their tokens",
    "fetched": "Tickets that were used up",
    "unfetched": "Tickets that failed, so vLLM computed the missing tokens",
    "lost": "Times that the daemon was lost, and requests ran without Tern",
    "rejoined": "Times that the daemon was back, and requests ran with Tern again",
    "refused": "Other requests that the daemon refused",
}


class TernStats(KVConnectorStats):
    """data: by counter, the increase since the last report"""

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, n in other.data.items():
            self.data[name] = self.data.get(name, 0) + n
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not self.data


class Since:
    """Computes the increase of counters since the last call."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def stats(self, counters: Mapping[str, int]) -> TernStats | None:
        gained = {name: n - self._told.get(name, 0) for name, n in counters.items()}
        self._told = dict(counters)
        stats = TernStats(data={name: n for name, n in gained.items() if n})
        return None if stats.is_empty() else stats


class TernMetrics(KVConnectorPromMetrics):
    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters: dict[tuple[str, int], Any] = {}
        for name, what in COUNTERS.items():
            counter = self._counter_cls(name=f"vllm:tern_{name}", documentation=what, labelnames=labelnames)
            for engine, values in per_engine_labelvalues.items():
                self._counters[name, engine] = counter.labels(*values)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, n in transfer_stats_data.items():
            self._counters[name, engine_idx].inc(n)
