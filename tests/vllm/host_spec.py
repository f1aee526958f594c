"""A spec for OffloadingConnector on a machine without a GPU: vLLM's own, with a worker that copies
host memory."""

# mypy: disable-error-code="import-not-found,attr-defined,misc,has-type"

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class HostWorker(OffloadingWorker):
    """Copies blocks of one group; each block is a chunk."""

    def __init__(self, caches: Any, region: Any) -> None:
        self._region, self._done = region, list[TransferResult]()
        self._pairs = [
            (c.tensor.view(torch.int8).view(-1, c.page_size_bytes), region.create_next_worker_view(c.page_size_bytes))
            for c in caches.tensors
        ]

    def _copy(self, job_id: int, blocks: Any, chunks: Any, store: bool) -> bool:
        block = torch.as_tensor(blocks.block_ids, dtype=torch.int64)
        chunk = torch.as_tensor(chunks.chunk_ids, dtype=torch.int64)
        for ours, theirs in self._pairs:
            if store:
                theirs[chunk] = ours[block]
            else:
                ours[block] = theirs[chunk]
        self._done.append(TransferResult(job_id, True))
        return True

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, src_spec, dst_spec, store=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, dst_spec, src_spec, store=False)

    def get_finished(self) -> list[TransferResult]:
        done, self._done = self._done, []
        return done

    def wait(self, job_ids: set[int]) -> None:
        """Returns at once: a job is complete when it is submitted."""

    def shutdown(self) -> None:
        self._pairs.clear()
        self._region.cleanup()


class HostSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches: Any) -> Any:
        if not self._worker:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = HostWorker(kv_caches, region)
        return self._worker
