"""Stock vLLM with its own OffloadingConnector, and Tern as that connector's secondary tier."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import model
import pytest
from conftest import Tiny
from daemons import Daemon
from instances import END_S, Nursery


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("llama")
    model.write(folder, "llama")
    return Tiny(folder)


def offloading(daemon: Daemon, primary: int) -> dict[str, Any]:
    tier = {"type": "TernTier", "module_path": "tern.vllm_tier", "socket": daemon.socket, "pool_bytes": "64M"}
    extra = {
        "spec_name": "HostSpec", "spec_module_path": "host_spec", "cpu_bytes_to_use": primary, "secondary_tiers": [tier],
    }  # fmt: skip
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def test_another_vllm_answers_from_what_one_computed(nursery: Nursery, llama: Tiny, daemon: Daemon) -> None:
    stock = llama.start(nursery).ready()
    expected = {name: stock.complete(prompt) for name, prompt in llama.prompts.items()}
    stock.stop()
    first = llama.start(nursery, offloading(daemon, 64 << 20)).ready()
    for name, prompt in llama.prompts.items():
        assert first.complete(prompt).said == expected[name].said
    first.complete(llama.new)  # runs steps in which the last stores end
    first.kill()
    second = llama.start(nursery, offloading(daemon, 64 << 20)).ready()
    for name, prompt in llama.prompts.items():
        answer = second.complete(prompt)
        assert answer.said == expected[name].said
        assert answer.cached == llama.whole(prompt), name
    # The daemon is gone: vLLM computes.
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(END_S) == 0
    assert second.complete(llama.new[::-1]).cached == 0
    second.stop()
