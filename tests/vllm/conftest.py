"""Fixtures: the tiny models, the answers of stock vLLM without Tern, and daemons."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import model
import pytest
from instances import END_S, Answer, Nursery, Vllm, ctl
from network import Network

sys.path.insert(0, str(Path(os.environ["TERN_SOURCE"]) / "client/python/tests"))
from daemons import Daemon, configured, free_port, run  # noqa: E402


MEMORY = "memory: 128M"  # the tenant's
HOSTS, HERE = ("host-a", "host-b"), "127.0.0.1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--requests", type=int, default=100, help="of the comparison under load (test_load.py)")
    parser.addoption("--rounds", type=int, default=2, help="of the measurement beside NixlConnector (test_times.py)")
    parser.addoption("--kills", type=int, default=5, help="of a vLLM under load, and twice as many apart (test_kills.py)")


def tokens(n: int, factor: int) -> list[int]:
    return [(i * factor) % 1000 + 3 for i in range(n)]


@dataclass(frozen=True)
class Tiny:
    """A model, and prompts of several of its blocks.

    block: tokens of one block
    base, more: tokens of the prompt "base", and of the part behind it in "longer"
    byte: position, from the end of a page, of a byte that an answer depends on
    engine: options of vLLM
    """

    folder: Path
    block: int = 32
    base: int = 300
    more: int = 150
    byte: int = -16384 + 5 * 256 + 7 * 2 + 1  # of the last layer: head 0, token 5, element 7, the upper one
    engine: dict[str, Any] = field(default_factory=dict)

    @property
    def prompts(self) -> dict[str, list[int]]:
        base = tokens(self.base, 7919)
        return {
            "base": base,
            "other first token": [base[0] + 1, *base[1:]],
            "longer": [*base, *tokens(self.more, 31)],
            "another": tokens(self.base + 200, 104729),
        }

    @property
    def new(self) -> list[int]:
        """Returns a prompt that begins like none of the others."""
        return tokens(self.base - 100, 15485863)

    def whole(self, prompt: list[int]) -> int:
        """Returns the tokens of the whole blocks before the prompt's last token."""
        return (len(prompt) - 1) // self.block * self.block

    @property
    def first(self) -> dict[str, int]:
        """Returns how many tokens of each prompt Tern has at first, in order: "longer" begins with
        "base"."""
        return {name: self.whole(self.prompts["base"]) if name == "longer" else 0 for name in self.prompts}

    @property
    def again(self) -> dict[str, int]:
        return {name: self.whole(prompt) for name, prompt in self.prompts.items()}

    def start(self, nursery: Nursery, transfer: dict[str, Any] | None = None) -> Vllm:
        return Vllm(nursery, self.folder, transfer, self.engine)


LINEAR = {
    "block": 640,
    "base": 1500,
    "more": 560,
    "byte": -640 * 1024 + 3 * 2048 * 2 + 1000 * 4 + 3,  # element 1000, of float32, behind convolution's state
    "engine": {"block_size": 128, "max_model_len": 4096, "enable_prefix_caching": True},  # vLLM makes 640 of the 128
}


@pytest.fixture(scope="session", params=["gemma", "llama", "qwen"])
def tiny(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Tiny:
    folder = tmp_path_factory.mktemp(request.param)
    model.write(folder, request.param)
    more: dict[str, Any] = LINEAR if request.param == "qwen" else {}
    return Tiny(folder, **more)


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Nursery:
    return Nursery(tmp_path_factory.mktemp("nursery"))


@pytest.fixture(scope="session")
def stock(nursery: Nursery, tiny: Tiny) -> dict[str, list[Answer]]:
    """Returns, by prompt, two answers of a vLLM without a connector and with an empty prefix
    cache."""
    vllm = tiny.start(nursery).ready()
    answers = {name: [vllm.complete(prompt) for _ in range(2)] for name, prompt in tiny.prompts.items()}
    vllm.stop()
    return answers


def end(*daemons: Daemon) -> None:
    for one in daemons:
        one.process.send_signal(signal.SIGTERM)
    for one in daemons:
        assert one.process.wait(END_S) == 0


def pool_of(daemon: Daemon) -> list[Any]:
    """Returns one row for each group of the pool."""
    return [r for r in ctl(Path(daemon.socket).parent / "admin.sock", "status")["pools"] if r["tier"] == "device"]


def at_rest(daemon: Daemon) -> int:
    """Asserts that only the prefix tree has pages. Returns the number of pages that are missing."""
    leaked = 0
    for row in pool_of(daemon):
        held = {what: row[what] for what in ("session", "borrowed", "transfer", "retiring", "quarantine")}
        assert not any(held.values()), held
        leaked += row["total"] - row["free"] - row["snapshot"] - row["reclaimable"]
    return leaked


def rests(daemon: Daemon) -> int:
    """Waits until only the prefix tree has pages: the pages of a killed engine are freed in pieces.
    Returns as at_rest."""
    end = time.monotonic() + END_S
    while True:
        try:
            return at_rest(daemon)
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    one = run(configured(tmp_path / "host-a", MEMORY), "host-a")
    yield one
    end(one)


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[list[Daemon]]:
    pair = pair_of(tmp_path, f"{MEMORY}, regions: 2")  # room for engines of two ranks
    yield pair
    end(*pair)


def pair_of(folder: Path, tenant: str, network: Network | None = None) -> list[Daemon]:
    """Starts two linked daemons, at addresses of the network if there is one."""
    ports = {name: (free_port(), free_port()) for name in HOSTS}
    reached = dict.fromkeys(HOSTS, HERE)
    pair = []
    for name, peer in (HOSTS, HOSTS[::-1]):
        if network:
            reached[peer] = f"127.0.{1 + HOSTS.index(peer)}.1"
            for port in ports[peer]:
                network.relay((reached[peer], port), (HERE, port), peer, name)
        control, data = ports[name]
        more = f"insecure_peers: true\nlisten: {HERE}:{control}\ndata_port: {data}\n"
        more += f"peers:\n  - {{name: {peer}, address: '{reached[peer]}:{ports[peer][0]}', tenants: [lm]}}\n"
        pair.append(run(configured(folder / name, tenant, more), name))
    return pair
