"""SIGKILL at random moments: of a vLLM under load, and of the processes before the decode instance,
whose network is also cut and stalled. `--kills N`: the number of losses."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import HOSTS, MEMORY, Tiny, end, pair_of, rests, tokens
from daemons import Daemon, free_port, run
from instances import Answer, Ask, Nursery, Server, is_up, tern
from network import Network
from test_connector import same

PROXY = Path(os.environ["TERN_SOURCE"]) / "client/python/examples/vllm_proxy.py"
ANSWER_S, TICK_S = 3600.0, 0.1
WITHIN_S = 120.0  # for an answer, whatever is lost: 30 s of repeated tickets, 30 s of a fetch, and the time to compute it
PAGE_BYTES = 4 * 16384  # of llama: its layers
RATE = 2e6  # bytes a second of a connection: a fetch of a prompt takes as long as computing it
LOSE_S = 0.8  # time within which the loss occurs, a third of them at once: computing a prompt and fetching it


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
        same(vllm, tiny, stock, tiny.again)  # Tern has what the killed one had, and nothing else is computed
        vllm.begin([Ask([rng.randrange(3, 1000) for _ in range(rng.randrange(50, 800))], 200) for _ in range(24)])
        time.sleep(rng.uniform(0, 3))
        vllm.kill()
        assert rests(daemon) == 0
    vllm = tiny.start(nursery, tern(daemon.socket)).ready()
    same(vllm, tiny, stock, tiny.again)
    vllm.stop()
    print(f"{kills} kills under load: after each start {tiny.again} tokens came back; leaked_pages=0")


# ---- separate prefill and decode


class Ran(threading.Thread):
    """Counts the seconds in which this process ran: a pause, in which it and all others were
    stopped, counts as one at most."""

    seconds = 0.0

    def run(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            self.seconds, before = self.seconds + min(now - before, 1.0), now


RAN = Ran(daemon=True)
RAN.start()


def ask(url: str, model: Path, prompt: list[int]) -> list[int]:
    """Returns the answer's tokens, which arrive within WITHIN_S."""
    body = {"model": str(model), "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    asked = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body | {"return_token_ids": True}).encode(), {"Content-Type": "application/json"}
    )
    said: list[list[int] | Exception] = []

    def wait() -> None:
        try:
            with urllib.request.urlopen(asked, timeout=ANSWER_S) as answer:
                said.append(list(json.load(answer)["choices"][0]["token_ids"]))
        except Exception as why:
            said.append(why)

    waiting, until = threading.Thread(target=wait, daemon=True), RAN.seconds + WITHIN_S
    waiting.start()
    while waiting.is_alive():
        assert RAN.seconds < until, f"no answer in {WITHIN_S:.0f} s"
        waiting.join(0.01)
    if isinstance(said[0], Exception):
        raise said[0]
    return said[0]


@contextmanager
def proxy(prefill: Server, decode: Server) -> Iterator[str]:
    port = free_port()
    words = ["--port", str(port), "--prefill", prefill.url, "--decode", decode.url]
    process = subprocess.Popen([sys.executable, PROXY, *words])
    url = f"http://127.0.0.1:{port}"
    while not is_up(url):
        assert process.poll() is None
        time.sleep(0.1)
    try:
        yield url
    finally:
        process.terminate()
        process.wait()


@dataclass
class Loss:
    """A loss while a request is under way: what is lost, how, and how it comes back.

    answers: answers that arrived; `fetched` of them by their ticket, the others computed by the
    decode instance
    tokens: tokens that a ticket was expected to supply and did not
    longest: longest time to an answer, in seconds
    """

    name: str
    lose: Callable[[], object]
    back: Callable[[], object]
    answers: int = 0
    fetched: int = 0
    tokens: int = 0
    longest: float = 0.0

    @property
    def words(self) -> str:
        told = f"{self.name}: {self.answers} right answers, {self.fetched} by ticket, {self.answers - self.fetched} computed"
        return f"{told} ({self.tokens} tokens of tickets), the longest took {self.longest:.1f} s"


class Apart:
    """Two hosts: one prefills, the other decodes."""

    def __init__(self, hosts: list[Daemon], network: Network, nursery: Nursery, tiny: Tiny) -> None:
        self.hosts, self.network, self.nursery, self.tiny = hosts, network, nursery, tiny
        self.prefill, self.decode = (self.server(host, free_port()) for host in hosts)
        for one in (self.prefill, self.decode):
            one.ready()

    def server(self, host: Daemon, port: int) -> Server:
        return Server(self.nursery, self.tiny.folder, tern(host.socket), port)

    def losses(self) -> list[Loss]:
        def start_prefill() -> None:
            self.prefill = self.server(self.hosts[0], self.prefill.port).ready()

        def start(host: Daemon) -> None:
            host.process.wait()
            host.process = run(Path(host.socket).parent, host.name).process

        found = [Loss("prefill vLLM killed", lambda: self.prefill.kill(), start_prefill)]
        for name, host in zip(("prefill", "decode"), self.hosts):
            killing, starting = partial(kill, host), partial(start, host)
            found.append(Loss(f"daemon of {name} killed", killing, starting))
        ways: dict[str, Callable[[], object]] = {"cut": self.network.cut, "stalled": self.network.stall}
        for name, there in zip(("prefill", "decode"), HOSTS):
            ways[f"stalled towards {name} alone"] = partial(self.network.stall, there)
        return found + [Loss(f"network {name}", way, self.network.restore) for name, way in ways.items()]

    def counted(self) -> tuple[int, int]:
        return self.decode.counter("fetched"), self.decode.counter("recomputed")

    def stop(self) -> None:
        for one in (self.prefill, self.decode):
            one.kill()


def kill(host: Daemon) -> None:
    host.process.kill()


def until_fetched(apart: Apart, url: str, n: int) -> None:
    """Asks for new prompts until one of them came by a ticket: then all that was killed has joined
    again."""
    until = RAN.seconds + WITHIN_S
    before = apart.decode.counter("fetched")
    while apart.decode.counter("fetched") == before:
        assert RAN.seconds < until, apart.nursery.tail()
        ask(url, apart.tiny.folder, tokens(300, 7 + 2 * n))
        n += 1000


def rounds(rng: random.Random, losses: Sequence[Loss], n: int) -> Iterator[Loss]:
    """Yields n losses in random order, each as often as the others."""
    for _ in range(0, n, len(losses)):
        yield from rng.sample(losses, min(len(losses), n))
        n -= len(losses)


@pytest.mark.parametrize("tiny", ["llama"], indirect=True)
def test_answers_come_and_are_right_whatever_is_lost_before_decode(
    tmp_path: Path, nursery: Nursery, tiny: Tiny, pytestconfig: pytest.Config
) -> None:
    kills, rng, network = 2 * pytestconfig.getoption("kills"), random.Random(2), Network(*HOSTS, rate=RATE)
    prompts = [tokens(rng.randrange(200, 1500), 104729 + 2 * i) for i in range(kills)]
    vllm = tiny.start(nursery).ready()
    right = [vllm.complete(prompt).said[0] for prompt in prompts]
    vllm.stop()
    hosts = pair_of(tmp_path, f"{MEMORY}, regions: 2", network)
    apart = Apart(hosts, network, nursery, tiny)
    losses = apart.losses()
    with proxy(apart.prefill, apart.decode) as url:
        for i, (prompt, loss) in enumerate(zip(prompts, rounds(rng, losses, kills), strict=True)):
            until_fetched(apart, url, i)
            before = apart.counted()
            timer = threading.Timer(max(0.0, rng.uniform(-LOSE_S / 2, LOSE_S)), loss.lose)
            begun = RAN.seconds
            timer.start()
            assert ask(url, tiny.folder, prompt) == right[i], loss.name
            took = RAN.seconds - begun
            timer.join()
            loss.back()
            fetched, lacked = (n - was for n, was in zip(apart.counted(), before))
            loss.answers, loss.fetched, loss.tokens = loss.answers + 1, loss.fetched + fetched, loss.tokens + lacked
            loss.longest = max(loss.longest, took)
            print(f"{i + 1}: {loss.name}: {took:.1f} s, {'by ticket' if fetched else 'computed'}", flush=True)
        until_fetched(apart, url, kills)
        lost = apart.decode.counter("lost")
    apart.stop()
    leaked = [rests(host) for host in hosts]
    end(*hosts)
    print(*(loss.words for loss in losses if loss.answers), sep="\n")
    print(f"{kills} right answers, wrong=0, each within {WITHIN_S:.0f} s; {lost=} leaked_pages={leaked}")
    assert leaked == [0, 0]
    assert network.carried["host-b"] > sum(loss.fetched for loss in losses) * 200 // tiny.block * PAGE_BYTES
    assert sum(loss.fetched for loss in losses) < kills, "no loss came in time to be one"
