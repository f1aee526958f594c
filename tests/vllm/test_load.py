"""Stock vLLM with few blocks under load, with Tern beneath it and without: eight requests at once in float32, preemptions,
requests that are given up, several turns, prompts in chunks, and salts. `--requests N` says how many."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import model
import pytest
from conftest import at_rest
from daemons import Daemon
from instances import Answer, Ask, Nursery, Vllm, tern
from load import Asked, Compared, Talk, turn, waves

OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 1024,
    "max_num_batched_tokens": 256,
    "enable_chunked_prefill": True,
    "num_gpu_blocks_override": 90,  # for some of the eight alone
    "enable_prefix_caching": True,
}


def asked(vllm: Vllm, rng: random.Random, wave: Sequence[Talk], before: dict[int, Asked], at: int) -> dict[int, Asked]:
    """The turn of all conversations of a wave that have one."""
    asks = {i: turn(rng, talk, before.get(i), at) for i, talk in enumerate(wave) if at < len(talk.news)}
    vllm.begin(list(asks.values()))
    return {i: Asked(ask, answer) for (i, ask), answer in zip(asks.items(), vllm.answers())}


def recorded(vllm: Vllm, n: int) -> list[list[Asked]]:
    """What stock vLLM answers, by what runs together. Its answers are part of later prompts."""
    rounds, rng = [], random.Random(n)
    for wave in waves(n):
        before: dict[int, Asked] = {}
        for at in range(max(len(talk.news) for talk in wave)):
            before = asked(vllm, rng, wave, before, at)
            rounds.append(list(before.values()))
    return rounds


def compared(vllm: Vllm, rounds: Sequence[Sequence[Asked]]) -> Compared:
    found = Compared()
    for together in rounds:
        vllm.begin([one.ask for one in together])
        for one, answer in zip(together, vllm.answers()):
            found.add(one.answer, answer)
    return found


def again(rounds: Sequence[Sequence[Asked]]) -> Ask:
    """A request whose prompt Tern has seen."""
    return max((one.ask for one in rounds[-1] if not one.ask.steps), key=lambda ask: len(ask.prompt))


@pytest.mark.parametrize("shape", ["llama", "gemma"])
def test_answers_are_the_same_under_load(
    daemon: Daemon, nursery: Nursery, tmp_path: Path, pytestconfig: pytest.Config, shape: str
) -> None:
    n, folder = pytestconfig.getoption("requests"), tmp_path / shape
    model.write(folder, shape)
    stock = Vllm(nursery, folder, None, OPTIONS).ready()
    rounds = recorded(stock, n)
    stock.stop()
    vllm = Vllm(nursery, folder, tern(daemon.socket), OPTIONS).ready()
    found = compared(vllm, rounds)
    counted = vllm.counters()
    last = again(rounds)
    vllm.begin([last])
    assert vllm.answers()[0].cached > 0
    leaked = at_rest(daemon)  # while vLLM lives: all sessions have been closed
    vllm.stop()
    told = {name.removeprefix("vllm:").removeprefix("tern_"): n for name, n in counted.items()}
    print(f"{shape}: {found.words}; leaked_pages={leaked}; {told}")
    assert found.requests >= n and found.near <= found.requests // 50
    assert told["num_preemptions"] > 0 and told["matched"] > 0 and told["loaded"] > 0
    assert (told["refused"], told["failed"], told["lost"], leaked) == (0, 0, 0, 0)


def answer(*tokens: int, best: float = -0.1, second: float = -3.0) -> Answer:
    """The second best of each token is the next one, or the one before."""
    return Answer((list(tokens), [[(token, best), (token ^ 1, second)] for token in tokens]), 0)


def test_the_comparison_sees_what_is_wrong() -> None:
    found = Compared()
    found.add(answer(2, 4), answer(2, 4))
    found.add(answer(2, 4, second=-0.10005), answer(2, 5, second=-0.10005))
    assert (found.requests, found.tokens, found.near) == (2, 3, 1)
    for wrong in (answer(2, 5), answer(2, 4, best=-0.1002), answer(2, 4, second=-3.0002)):
        with pytest.raises(AssertionError):
            Compared().add(answer(2, 4), wrong)
