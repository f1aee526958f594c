"""The part of vllm.config that tests/vllm imports."""

from typing import Any

KVTransferConfig: Any
