"""SIGKILL at random moments: of a vLLM under load, and of what stands before the decode instance. `--kills N`: how often."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Tiny, rests, tokens
from daemons import Daemon, free_port, run
from instances import Answer, Ask, Nursery, Server, is_up, tern
from test_connector import same

PROXY = Path(os.environ["TERN_SOURCE"]) / "client/python/examples/vllm_proxy.py"
WITHIN_S = 120.0  # for an answer, whatever is killed: a ticket is asked for again for 30 s of it


@pytest.mark.parametrize("tiny", ["llama"], indirect=True)
def test_a_vllm_that_is_killed_under_load_finds_what_it_had(
    daemon: Daemon, nursery: Nursery, tiny: Tiny, stock: dict[str, list[Answer]], pytestconfig: pytest.Config
) -> None:
    kills, rng = pytestconfig.getoption("kills"), random.Random(1)
    vllm = tiny.start(nursery, tern(daemon.socket)).ready()
    same(vllm, tiny, stock, tiny.first)
    vllm.stop()
    for kill in range(kills):
        vllm = tiny.start(nursery, tern(daemon.socket)).ready()
        same(vllm, tiny, stock, tiny.again)  # what it had, and nothing else is computed
        vllm.begin([Ask([rng.randrange(3, 1000) for _ in range(rng.randrange(50, 800))], 200) for _ in range(24)])
        time.sleep(rng.uniform(0, 3))
        vllm.kill()
        assert rests(daemon) == 0
    vllm = tiny.start(nursery, tern(daemon.socket)).ready()
    same(vllm, tiny, stock, tiny.again)
    vllm.stop()
    print(f"{kills} kills under load: after each start {tiny.again} tokens came back; leaked_pages=0")


# ---- prefill and decode apart


def ask(url: str, model: Path, prompt: list[int]) -> list[int]:
    body = {"model": str(model), "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    asked = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body | {"return_token_ids": True}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=WITHIN_S) as answer:
        told: dict[str, Any] = json.load(answer)
    return list(told["choices"][0]["token_ids"])


@contextmanager
def proxy(prefill: Server, decode: Server) -> Iterator[str]:
    port = free_port()
    words = ["--port", str(port), "--prefill", prefill.url, "--decode", decode.url]
    process = subprocess.Popen([sys.executable, PROXY, *words])
    url = f"http://127.0.0.1:{port}"
    while not is_up(url):
        assert process.poll() is None
        time.sleep(0.1)
    yield url
    process.terminate()
    process.wait()


class Apart:
    """Two hosts, of which one prefills and the other one decodes."""

    def __init__(self, hosts: list[Daemon], nursery: Nursery, tiny: Tiny) -> None:
        self.hosts, self.nursery, self.tiny = hosts, nursery, tiny
        self.prefill, self.decode = (self.server(host, free_port()) for host in hosts)
        for one in (self.prefill, self.decode):
            one.ready()

    def server(self, host: Daemon, port: int) -> Server:
        return Server(self.nursery, self.tiny.folder, tern(host.socket), port)

    def losses(self) -> list[tuple[str, Callable[[], None], Callable[[], None]]]:
        """What may be killed: its name, how, and how it comes back."""

        def start_prefill() -> None:
            self.prefill = self.server(self.hosts[0], self.prefill.port).ready()

        def start(host: Daemon) -> None:
            host.process.wait()
            host.process = run(Path(host.socket).parent, host.name).process

        found: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
            ("the prefill instance", lambda: self.prefill.kill(), start_prefill)
        ]
        for name, host in zip(("its daemon", "the daemon of decode"), self.hosts):
            found.append((name, host.process.kill, lambda host=host: start(host)))  # type: ignore[misc]
        return found

    def stop(self) -> None:
        for one in (self.prefill, self.decode):
            one.kill()


def until_fetched(apart: Apart, url: str, n: int) -> None:
    """Asks for new prompts until one of them has come by a ticket: all have joined again what was killed."""
    end = time.monotonic() + WITHIN_S
    before = apart.decode.counter("fetched")
    while apart.decode.counter("fetched") == before:
        assert time.monotonic() < end, apart.nursery.tail()
        ask(url, apart.tiny.folder, tokens(300, 7 + 2 * n))
        n += 1000


@pytest.mark.parametrize("tiny", ["llama"], indirect=True)
def test_answers_come_and_are_right_whatever_is_killed_before_decode(
    two_hosts: list[Daemon], nursery: Nursery, tiny: Tiny, pytestconfig: pytest.Config
) -> None:
    kills, rng = 2 * pytestconfig.getoption("kills"), random.Random(2)
    prompts = [tokens(rng.randrange(200, 1500), 104729 + 2 * i) for i in range(kills)]
    vllm = tiny.start(nursery).ready()
    right = [vllm.complete(prompt).said[0] for prompt in prompts]
    vllm.stop()
    apart, said, longest = Apart(two_hosts, nursery, tiny), dict[str, int](), 0.0
    with proxy(apart.prefill, apart.decode) as url:
        for i, prompt in enumerate(prompts):
            until_fetched(apart, url, i)
            name, kill, start = rng.choice(apart.losses())
            timer = threading.Timer(rng.uniform(0, 0.5), kill)
            begun = time.monotonic()
            timer.start()
            assert ask(url, tiny.folder, prompt) == right[i], f"{name} was killed"
            longest = max(longest, time.monotonic() - begun)
            timer.join()
            start()
            said[name] = said.get(name, 0) + 1
        until_fetched(apart, url, kills)
        recomputed, lost = apart.decode.counter("recomputed"), apart.decode.counter("lost")
    apart.stop()
    for host in two_hosts:
        assert rests(host) == 0
    print(f"{said}: {kills} right answers, the longest took {longest:.1f} s; {recomputed=} {lost=}; leaked_pages=0")
