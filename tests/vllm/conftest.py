"""The tiny model, what stock vLLM alone answers, and a daemon."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import model
import pytest
from instances import END_S, Answer, Nursery, Vllm

sys.path.insert(0, str(Path(os.environ["TERN_SOURCE"]) / "client/python/tests"))
from daemons import Daemon, run  # noqa: E402

BASE = [(i * 7919) % 1000 + 3 for i in range(300)]
PROMPTS: dict[str, list[int]] = {
    "base": BASE,
    "other first token": [BASE[0] + 1, *BASE[1:]],
    "longer": [*BASE, *((i * 31) % 1000 + 3 for i in range(150))],
    "another": [(i * 104729) % 1000 + 3 for i in range(500)],
}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    model.write(folder)
    return folder


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Nursery:
    return Nursery(tmp_path_factory.mktemp("nursery"))


@pytest.fixture(scope="session")
def stock(nursery: Nursery, tiny: Path) -> dict[str, list[Answer]]:
    """By prompt, two answers of a vLLM without a connector and without a prefix cache."""
    vllm = Vllm(nursery, tiny).ready()
    answers = {name: [vllm.complete(prompt) for _ in range(2)] for name, prompt in PROMPTS.items()}
    vllm.stop()
    return answers


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "ternd.yaml").write_text(
        f"""node: host-a
admin:
  socket: {tmp_path}/admin.sock
tenants:
  - name: lm
    socket: {tmp_path}/lm.sock
    memory: 128M
"""
    )
    one = run(tmp_path, "host-a")
    yield one
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(END_S) == 0
