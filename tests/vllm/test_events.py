"""The bridge reports of Tern what vLLM reports of itself. The events of one vLLM over Tern, from
its own publisher and from the bridge, both decoded by vLLM's structs, are equal except for time,
medium, locality, and the number of blocks in an event: without adapters and salts and with them.
Blocks that vLLM computed twice it reports twice; Tern has them once. vLLM keeps and reports only a
few blocks of sliding windows; Tern keeps and reports all, with the same names."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import model
import msgspec
import pytest
import zmq
from conftest import MEMORY, end
from daemons import Daemon, configured, free_port, run
from instances import END_S, ENVIRONMENT, READY_S, tern

BLOCK, ANSWER = 32, 40
WAIT_MS = 30_000
SEED = "17"
BASE = [(i * 7919) % 1000 + 3 for i in range(300)]
PROMPTS = (
    BASE,
    [BASE[0] + 1, *BASE[1:]],
    [*BASE, *((i * 31) % 1000 + 3 for i in range(150))],
    BASE,
    [(i * 104729) % 1000 + 3 for i in range(500)],
)
ALONE = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": SEED,
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


def windows(told: list[Any]) -> set[Any]:
    """Returns what is reported of each block of a window. vLLM leaves out blocks of an event's
    tokens."""
    return {
        (name, keys, event.group_idx, event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window, event.block_size)
        for event in told
        if event.kv_cache_spec_sliding_window is not None
        for name, keys in zip(event.block_hashes, event.extra_keys or (), strict=True)
    }


@contextmanager
def child(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process group whose output goes into `log`."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=ENVIRONMENT | ALONE, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(END_S)


def post(url: str, words: dict[str, object]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(words).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=READY_S) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + READY_S
    while True:
        with suppress(OSError), urllib.request.urlopen(url, timeout=END_S) as answer:
            if answer.status == 200:
                return
        assert process.poll() is None and time.monotonic() < until, log.read_text(errors="replace")[-8000:]
        time.sleep(0.5)


def structs() -> Any:
    return importlib.import_module("vllm.distributed.kv_events")


def events(replay: str) -> list[Any]:
    """Returns all events of a publisher, as vLLM's own structs."""
    found: list[Any] = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
        asking.linger, asking.rcvtimeo = 0, WAIT_MS
        asking.connect(replay)
        asking.send_multipart([b"", (0).to_bytes(8, "big")])
        while True:
            _, _, number, batch = asking.recv_multipart()
            if number == b"\xff" * 8:
                return found
            told = msgspec.msgpack.decode(batch, type=structs().KVEventBatch)
            assert told.data_parallel_rank == 0
            found += told.events


def blocks(told: list[Any]) -> list[Any]:
    """Returns one event for each block of full attention, at its first report, without medium and
    locality."""
    found = []
    for event in told:
        assert isinstance(event, structs().BlockStored), event
        if event.kv_cache_spec_sliding_window is not None:
            continue
        parent, keys = event.parent_block_hash, event.extra_keys
        assert keys is not None and len(event.token_ids) == BLOCK * len(keys)
        for i, name in enumerate(event.block_hashes):
            found.append(
                msgspec.structs.replace(
                    event,
                    block_hashes=[name],
                    parent_block_hash=parent,
                    token_ids=event.token_ids[i * BLOCK : (i + 1) * BLOCK],
                    extra_keys=[keys[i]],
                    medium=None,
                    locality=None,
                )
            )
            parent = name
    return [one for i, one in enumerate(found) if one not in found[:i]]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    one = run(configured(tmp_path / "host-a", f"{MEMORY}, events_tokens: true"), "host-a")
    yield one
    end(one)


@dataclass(frozen=True)
class Case:
    """A case of the comparison.

    adapters: number of adapters; each is asked with each salt, and so is the model without adapter
    windows: number of groups of windows
    """

    shape: str
    adapters: int = 0
    windows: int = 0

    @property
    def asked(self) -> list[tuple[int, str]]:
        return [(adapter, salt) for adapter in range(self.adapters + 1) for salt in ("", *SALTS)]


SALTS = ("mine", "yours")
CASES = [Case("llama", adapters=2), Case("gemma", windows=2)]


def options(folder: Path, case: Case, port: int, own: dict[str, Any], socket: str) -> list[str]:
    adapters = [f"adapter-{n}={folder}-adapter-{n}" for n in range(1, case.adapters + 1)]
    words = ["--model", str(folder), "--port", str(port), "--enforce-eager", "--max-model-len", "2048", "--seed", "0"]
    words += ["--block-size", str(BLOCK), "--enable-prefix-caching", "--prefix-caching-hash-algo", "sha256_cbor"]
    words += ["--kv-events-config", json.dumps(own), "--kv-transfer-config", json.dumps(tern(socket))]
    return words + (["--enable-lora", "--max-lora-rank", "8", "--lora-modules", *adapters] if adapters else [])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.shape)
def test_events_are_those_of_vllm(tmp_path: Path, daemon: Daemon, case: Case) -> None:
    folder, port = tmp_path / case.shape, free_port()
    model.write(folder, case.shape)
    for n in range(case.adapters):
        model.write_adapter(folder, case.shape, n + 1)
    (tmp_path / "salts").write_text("".join(f"{salt}\n" for salt in SALTS))
    ends = {name: {what: f"ipc://{tmp_path}/{name}-{what}" for what in ("pub", "replay")} for name in ("vllm", "tern")}
    own = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": ends["vllm"]["pub"],
        "replay_endpoint": ends["vllm"]["replay"],
    }
    server = (
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *options(folder, case, port, own, daemon.socket),
    )
    bridge = (
        *(sys.executable, "-m", "tern.vllm.events", "--socket", daemon.socket, "--model", str(folder)),
        *("--block-size", str(BLOCK), "--endpoint", ends["tern"]["pub"], "--replay", ends["tern"]["replay"]),
        *("--salts", str(tmp_path / "salts")),
        *(f"--lora=adapter-{n}={folder}-adapter-{n}" for n in range(1, case.adapters + 1)),
    )
    log, url = tmp_path / "vllm.log", f"http://127.0.0.1:{port}"
    with child(log, *server) as process, child(tmp_path / "bridge.log", *bridge) as following:
        ready(f"{url}/health", process, log)
        for adapter, salt in case.asked:
            for prompt in PROMPTS:
                words = {"prompt": prompt, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True}
                words |= {"model": f"adapter-{adapter}" if adapter else str(folder)} | ({"cache_salt": salt} if salt else {})
                assert post(f"{url}/v1/completions", words)["usage"]["completion_tokens"] == ANSWER
        until = time.monotonic() + END_S
        while True:
            own_events = events(ends["vllm"]["replay"])
            cleared, *told = events(ends["tern"]["replay"])
            wanted, mine = blocks(own_events), blocks(told)
            if len(mine) >= len(wanted) or time.monotonic() > until:
                break
            assert following.poll() is None, (tmp_path / "bridge.log").read_text()
            time.sleep(0.1)
    assert cleared == structs().AllBlocksCleared()
    assert {(event.medium, event.locality) for event in told} == {(structs().MEDIUM_CPU, "LOCAL")}
    assert len(wanted) > len(case.asked) * sum(len(prompt) // BLOCK for prompt in PROMPTS[:2])
    if mine != wanted:  # a short message, because the lists are long
        lacking = [one for one in wanted if one not in mine], [one for one in mine if one not in wanted]
        raise AssertionError(f"{[len(some) for some in lacking]} differ, such as {[some[:1] for some in lacking]}")
    keys = {key for event in wanted for key in event.extra_keys}
    assert len(keys) == (1 + case.adapters) * (1 + len(SALTS))
    kept, in_windows = windows(own_events), windows(told)
    assert kept <= in_windows and len(in_windows) == case.windows * len(mine)
    assert len({group for _, _, group, *_ in kept}) == case.windows
    print(f"{case.shape}: {len(wanted)} blocks of {len(case.asked)} adapters and salts in {len(told)} events of the bridge: equal")
    if case.windows:
        print(f"{case.windows} groups of windows: all of vLLM's {len(kept)} blocks are among the bridge's {len(in_windows)}")
    print(*(next(event for event in wanted if event.extra_keys == [key]) for key in sorted(keys, key=str)), sep="\n")
