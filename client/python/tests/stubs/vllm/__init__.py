"""The parts of vLLM that tern.vllm.connector and tests/vllm import, for hosts without vLLM.
tests/vllm/test_stubs.py compares it with the installed one."""

from typing import Any

__version__ = "0.32.0"
LLM: Any
SamplingParams: Any
