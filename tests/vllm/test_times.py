"""Separate prefill and decode: the time to decode's first token, and the number of requests that
decode answers, with Tern and with vLLM's NixlConnector, if `nixl` and `nixl-cu13` are installed.
The bounds are computing the prompt, and vLLM's own prefix cache. The ways alternate, and the first
request of each is counted separately. Times are printed; tokens are compared."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import model
import pytest
from conftest import end, pair_of
from daemons import Daemon, free_port
from instances import Answer, Ask, Nursery, Vllm, tern
from load import words

_T = TypeVar("_T")

PROMPTS = 8  # at a time, where requests are counted
TOKENS = 8  # of an answer there
SHORTEST, LONGEST = 900, 1100  # tokens of a prompt
KV_BYTES = 32 << 10  # of a token: 16 layers, 2 heads of 128, K and V, four bytes each
# Blocks for PROMPTS of them. In float32 vLLM's attention does not use AMX; bfloat16 with AMX
# crashed at random (SIGILL).
ENGINE: dict[str, Any] = {"dtype": "float32", "num_gpu_blocks_override": 320}
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
BY_NETWORK = {"UCX_TLS": "tcp"}  # as between two hosts; by default UCX copies from the other process's memory


@dataclass
class Way:
    """A way for decode to get a prompt's KV. Times are in seconds.

    prefill: the instance that gets the prompt before; None: none
    salt: separates ways that share a host
    prefilled, first: time of each single request at prefill, and to decode's first token
    many: time of each PROMPTS requests at once, at decode
    """

    decode: Vllm
    prefill: Vllm | None = None
    salt: str = ""
    prefilled: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)

    def transfers(self, prompts: Sequence[list[int]]) -> list[dict[str, Any] | None]:
        """Prefills the prompts. Returns the parameters for decode."""
        if self.prefill is None:
            return [None] * len(prompts)
        self.prefill.begin([Ask(prompt, 1, self.salt, transfer={"do_remote_decode": True}) for prompt in prompts])
        told = [answer.transfer for answer in self.prefill.answers()]
        assert all(told)
        return told

    def decoded(self, prompts: Sequence[list[int]], tokens: int) -> tuple[list[Answer], float, float]:
        """Returns the answers, and the seconds that prefill and decode took."""

        def ask() -> list[Answer]:
            self.decode.begin([Ask(p, tokens, self.salt, transfer=told) for p, told in zip(prompts, transfers)])
            return self.decode.answers()

        self.signal(signal.SIGCONT)
        transfers, before = timed(lambda: self.transfers(prompts))
        answers, seconds = timed(ask)
        self.signal(signal.SIGSTOP)
        return answers, before, seconds

    def signal(self, which: int) -> None:
        """Sends a signal to the instances of this way. Those of other ways are stopped:
        NixlConnector's threads compute even without requests."""
        for vllm in (self.prefill, self.decode):
            if vllm:
                os.kill(vllm.pid, which)

    def one(self, prompt: list[int]) -> Answer:
        answers, before, seconds = self.decoded([prompt], 1)
        self.prefilled.append(before)
        self.first.append(seconds)
        return answers[0]

    def several(self, prompts: Sequence[list[int]]) -> None:
        self.many.append(self.decoded(prompts, TOKENS)[2])

    @property
    def row(self) -> dict[str, float]:
        """Milliseconds, and requests a second. The first request is separate: connections are made
        then."""
        rest = sorted(self.first[1:])
        worst = rest[min(len(rest) - 1, len(rest) * 99 // 100)]
        found = {"first_ms": self.first[0], "ttft_p50_ms": statistics.median(rest), "ttft_p99_ms": worst}
        found |= {"prefill_p50_ms": statistics.median(self.prefilled[1:])} if self.prefill else {}
        told = {name: round(1000 * seconds, 1) for name, seconds in found.items()}
        return told | {"requests_s": round(PROMPTS * len(self.many) / sum(self.many), 2)}


def timed(call: Callable[[], _T]) -> tuple[_T, float]:
    begun = time.monotonic()
    return call(), time.monotonic() - begun


@pytest.fixture
def ways(nursery: Nursery, tmp_path: Path) -> Iterator[dict[str, Way]]:
    hosts = pair_of(tmp_path, "memory: 576M")
    found = started(nursery, tmp_path / "deep", hosts)
    yield found
    for vllm in instances(found):
        vllm.kill()  # NixlConnector's libraries crash if a process exits by itself
    end(*hosts)


def started(nursery: Nursery, folder: Path, hosts: Sequence[Daemon]) -> dict[str, Way]:
    """Starts the ways. The instance that computes has a prefix cache of its own, and finds a
    repeated prompt there."""
    model.write(folder, "deep")

    def on(host: Daemon, name: str) -> Vllm:
        return Vllm(nursery, folder, tern(host.socket, pool_bytes="512M", engine=name), ENGINE)

    def nixl(**ucx: str) -> Vllm:
        port = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
        return Vllm(nursery, folder, NIXL, ENGINE, environment=port | ucx)

    plain = Vllm(nursery, folder, None, ENGINE | {"enable_prefix_caching": True}, keeps_cache=True)
    prefill = on(hosts[0], "prefill")
    found = {"computed": Way(plain), "own cache": Way(plain)}
    found |= {"Tern": Way(on(hosts[1], "decode"), prefill), "Tern, one host": Way(on(hosts[0], "beside"), prefill, "one")}
    if importlib.util.find_spec("nixl"):
        found["NixlConnector, one host"] = Way(nixl(), nixl())
        found["NixlConnector"] = Way(nixl(**BY_NETWORK), nixl(**BY_NETWORK))
    for vllm in instances(found):
        vllm.ready()
    for vllm in instances(found):  # so that no measured request is an engine's first
        vllm.complete(words(random.Random(0), SHORTEST), TOKENS)
    for way in found.values():
        way.signal(signal.SIGSTOP)
    return found


def instances(ways: dict[str, Way]) -> list[Vllm]:
    return list({id(v): v for way in ways.values() for v in (way.prefill, way.decode) if v}.values())


def test_times_to_the_first_token(ways: dict[str, Way], pytestconfig: pytest.Config) -> None:
    rounds, rng = pytestconfig.getoption("rounds"), random.Random(1)
    for turn in range(rounds):
        names = list(ways)[2:]
        order = ["computed", "own cache", *names[turn % len(names) :], *names[: turn % len(names)]]
        for _ in range(PROMPTS):
            prompt = words(rng, rng.randrange(SHORTEST, LONGEST))
            said = {name: ways[name].one(prompt).said[0] for name in order}
            assert all(tokens == said["computed"] for tokens in said.values()), said
        prompts = [words(rng, rng.randrange(SHORTEST, LONGEST)) for _ in range(PROMPTS)]
        for name in order:
            ways[name].several(prompts)
    for name in ("Tern", "Tern, one host"):
        ways[name].signal(signal.SIGCONT)
        told = ways[name].decode.counters()
        assert (told["vllm:tern_unfetched"], told["vllm:tern_recomputed"], told["vllm:tern_failed"]) == (0, 0, 0)
    print(table({name: way.row for name, way in ways.items()}, rounds))


def table(rows: dict[str, dict[str, float]], rounds: int) -> str:
    columns = ("first_ms", "ttft_p50_ms", "ttft_p99_ms", "prefill_p50_ms", "requests_s")
    lines = ["".join(f"{word:>16}" for word in ("", *columns))]
    lines += ["".join(f"{word:>16}" for word in (name, *(row.get(c, "") for c in columns))) for name, row in rows.items()]
    told = {"rounds": rounds, "prompts_a_round": PROMPTS, "kv_bytes_a_token": KV_BYTES, "ways": rows}
    return "\n".join(["", *lines, json.dumps(told)])
