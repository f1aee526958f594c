"""Dynamo's own indexer, fed by the bridge of KV events, knows what Tern has: its answers for 1,000
prompts equal Peek's, by tier, while prefixes are stored, move from the device to the host, and are
removed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import tern
from daemons import READY_S, Daemon, again, configured, free_port, run
from tern.vllm.event_blocks import NO_EXTRAS, Adapter, Space

BLOCK, ROOTS, PROMPTS = 16, 40, 1000
MODEL, KV_DTYPE = "m", "torch.bfloat16/None"
KV = tern.Group("kv", page_tokens=BLOCK, shape=(BLOCK, 8))  # a page is 512 bytes: one chunk, one block
POOL, HOST = 256 << 10, 192 << 10  # less than the prompts need
GPU = "GPU-7374616e-6469-6e00-0000-000000000001"  # the stand-in's
SPACES = [NO_EXTRAS, Space(Adapter("a", "/a", 1))]  # no salts: the indexer sees one only in the first event of a prefix


@dataclass(frozen=True)
class Prompt:
    space: Space
    tokens: list[int]

    @property
    def ns(self) -> tern.Namespace:
        return self.space.namespace(MODEL, "", KV_DTYPE)


def prompts(seed: int) -> list[Prompt]:
    """Returns prompts of conversations that branch: most begin like another one, and many end
    inside a block."""
    draw = random.Random(seed)
    roots = [[draw.randrange(1000) for _ in range(8 * BLOCK)] for _ in range(ROOTS)]
    found = []
    for _ in range(PROMPTS):
        root = draw.choice(roots)
        tokens = root[: draw.randrange(1, len(root) + 1)] + [draw.randrange(3) for _ in range(draw.randrange(0, 3 * BLOCK))]
        found.append(Prompt(draw.choice(SPACES), tokens))
        if draw.random() < 0.1:
            roots[draw.randrange(ROOTS)] = tokens + [draw.randrange(1000) for _ in range(2 * BLOCK)]
    return found


@contextmanager
def child(*command: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(READY_S)


class Indexer:
    """The HTTP API of `python -m dynamo.indexer`, which follows one bridge."""

    def __init__(self, port: int, process: subprocess.Popen[str], log: Path) -> None:
        self._port = port
        end = time.monotonic() + READY_S
        while True:
            try:
                self.asked("GET", "/health")
                return
            except OSError:
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.05)

    def asked(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        http = HTTPConnection("127.0.0.1", self._port, timeout=READY_S)  # a new one each time: the indexer closes idle ones
        http.request(method, path, json.dumps(body or {}), {"Content-Type": "application/json"})
        answer = http.getresponse()
        told = answer.read()
        http.close()
        assert answer.status < 300, (path, answer.status, told)
        return json.loads(told) if body else None

    def register(self, ends: dict[str, str]) -> None:
        where = {"endpoint": ends["endpoint"], "replay_endpoint": ends["replay"]}
        self.asked("POST", "/register", {"instance_id": 1, "model_name": MODEL, "block_size": BLOCK, **where})

    def depths(self, prompt: Prompt) -> tuple[int, int]:
        """Returns the tokens on the device, and on the device or the host."""
        words: dict[str, Any] = {"model_name": MODEL, "token_ids": prompt.tokens}
        if prompt.space.adapter:
            words["lora_name"] = prompt.space.adapter.name
        found = self.asked("POST", "/query", words)["instances"].get("1")
        return (found["gpu"], found["longest_matched"]) if found else (0, 0)


@dataclass
class Rig:
    """A daemon with the bridge and the indexer.

    on_gpu: the pool lies on the GPU
    ends: the bridge's endpoints, until the indexer knows them: it registers late, and requests a
    replay
    """

    daemon: Daemon
    indexer: Indexer
    on_gpu: bool
    ends: dict[str, str]

    def store(self, prompts: list[Prompt]) -> None:
        with tern.connect(self.daemon.socket) as connection:
            engine = connection.join("e", device=GPU if self.on_gpu else None)
            pool = engine.open_pool([KV], bytes=POOL, host_bytes=HOST)
            for i, prompt in enumerate(prompts):
                if self.ends and i == len(prompts) // 2:
                    self.indexer.register(self.ends)
                    self.ends = {}
                n = len(prompt.tokens) // BLOCK * BLOCK
                session = pool.session(prompt.ns)
                session.match(prompt.tokens)
                end = time.monotonic() + READY_S
                while True:  # other prefixes are evicted once they are copied to the host and their checksums are known
                    try:
                        session.extend(written=n, allocated=n)
                        break
                    except (tern.Busy, tern.Exhausted):
                        assert time.monotonic() < end
                        time.sleep(0.001)
                with engine.step() as step:
                    session.commit(n, step=step)
                    session.close(step=step)
                connection.wait_published(step)
            self.agrees(pool, prompts)

    def peeked(self, pool: tern.Pool, prompt: Prompt) -> tuple[int, int]:
        depths = pool.peek(prompt.ns, prompt.tokens)
        return (depths.resumable if self.on_gpu else 0, max(depths.resumable, depths.host))

    def agrees(self, pool: tern.Pool, prompts: list[Prompt]) -> None:
        """Waits until the indexer agrees with Peek: copies to the host and the bridge take their
        time."""
        end = time.monotonic() + READY_S
        while True:
            peeked = [self.peeked(pool, prompt) for prompt in prompts]
            told = [self.indexer.depths(prompt) for prompt in prompts]
            if told == peeked:
                break
            wrong = [(p, t) for p, t in zip(peeked, told, strict=True) if p != t]
            assert time.monotonic() < end, f"Peek and indexer differ for {len(wrong)} prompts, such as {wrong[:5]}"
            time.sleep(0.1)
        on_device, both = (sum(depth[i] > 0 for depth in told) for i in (0, 1))
        gone = sum(depth[1] < len(prompt.tokens) // BLOCK * BLOCK for prompt, depth in zip(prompts, told, strict=True))
        on_host = sum(depth[0] < depth[1] for depth in told)
        print(f"{len(told)} prompts: {on_device} on the device, {both} anywhere, {on_host} deeper on the host, {gone} not whole")
        assert both > 100 and gone > 100 and on_host > 100  # else the comparison shows little


@contextmanager
def rig(folder: Path, on_gpu: bool) -> Iterator[Rig]:
    tenant = f"events_tokens: true, memory: 1M, host_memory: 1M{f', devices: {GPU}, device_memory: true' if on_gpu else ''}"
    daemon = run(configured(folder / "host-a", tenant, "page_bytes_min: 256\nlimits: {events: 65536}\n"), "host-a")
    logs = folder / "bridge.log", folder / "indexer.log"
    words = ["--socket", daemon.socket, "--model", MODEL, "--kv-dtype", KV_DTYPE, "--block-size", str(BLOCK), "--lora", "a=/a"]
    ends = ["--endpoint", "tcp://127.0.0.1:*", "--replay", "tcp://127.0.0.1:*"]
    port = free_port()
    with ExitStack() as stack:
        bridge = stack.enter_context(child(sys.executable, "-m", "tern.vllm.events", *words, *ends, log=logs[0]))
        process = stack.enter_context(child(sys.executable, "-m", "dynamo.indexer", "--port", str(port), log=logs[1]))
        assert bridge.stdout
        line = bridge.stdout.readline()
        assert "ready" in line, logs[0].read_text()
        indexer = Indexer(port, process, logs[1])
        one = Rig(daemon, indexer, on_gpu, dict(word.split("=", 1) for word in line.split() if "=" in word))
        yield one
        one.daemon.process.send_signal(signal.SIGTERM)
        assert one.daemon.process.wait(READY_S) == 0


@pytest.mark.parametrize("on_gpu", [True, False], ids=["gpu", "host"])
def test_indexer_answers_as_peek_does(tmp_path: Path, on_gpu: bool) -> None:
    with rig(tmp_path, on_gpu) as one:
        one.store(prompts(1))
        one.daemon = again(one.daemon)  # the indexer must forget the blocks of the daemon before
        one.store(prompts(2))
