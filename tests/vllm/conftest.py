"""The tiny models, what stock vLLM alone answers, and a daemon."""

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
from daemons import Daemon, free_port, run  # noqa: E402

BASE = [(i * 7919) % 1000 + 3 for i in range(300)]
PROMPTS: dict[str, list[int]] = {
    "base": BASE,
    "other first token": [BASE[0] + 1, *BASE[1:]],
    "longer": [*BASE, *((i * 31) % 1000 + 3 for i in range(150))],
    "another": [(i * 104729) % 1000 + 3 for i in range(500)],
}


@pytest.fixture(scope="session", params=sorted(model.SHAPES))
def tiny(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    model.write(folder, request.param)
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


def configured(folder: Path, name: str, more: str = "") -> Path:
    here = folder / name
    here.mkdir()
    (here / "ternd.yaml").write_text(
        f"""node: {name}
admin:
  socket: {here}/admin.sock
tenants:
  - name: lm
    socket: {here}/lm.sock
    memory: 128M
{more}"""
    )
    return here


def end(*daemons: Daemon) -> None:
    for one in daemons:
        one.process.send_signal(signal.SIGTERM)
    for one in daemons:
        assert one.process.wait(END_S) == 0


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    one = run(configured(tmp_path, "host-a"), "host-a")
    yield one
    end(one)


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[list[Daemon]]:
    """Two daemons that know each other."""
    names, ports = ("host-a", "host-b"), (free_port(), free_port())
    pair = []
    for i, name in enumerate(names):
        more = f"insecure_peers: true\nlisten: 127.0.0.1:{ports[i]}\n"
        more += f"peers:\n  - {{name: {names[1 - i]}, address: '127.0.0.1:{ports[1 - i]}', tenants: [lm]}}\n"
        pair.append(run(configured(tmp_path, name, more), name))
    yield pair
    end(*pair)
