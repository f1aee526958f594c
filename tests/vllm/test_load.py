"""Stock vLLM with few blocks under load, over Tern and without it: eight requests at once in
float32, preemptions, aborted requests, several turns, prompts in chunks, salts, and adapters.
`--requests N`: the number of requests."""

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
from load import Asked, Compared, Talk, turn, waves, words

OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 1024,
    "max_num_batched_tokens": 256,
    "enable_chunked_prefill": True,
    "num_gpu_blocks_override": 60,  # enough for only some of the eight requests
    "enable_prefix_caching": True,
}
ADAPTERS = {"llama": 2, "gemma": 0}
LORA: dict[str, Any] = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}


def asked(vllm: Vllm, rng: random.Random, wave: Sequence[Talk], before: dict[int, Asked], at: int) -> dict[int, Asked]:
    """Runs one turn of all conversations of a wave that have such a turn. Returns the requests with
    their answers."""
    asks = {i: turn(rng, talk, before.get(i), at) for i, talk in enumerate(wave) if at < len(talk.news)}
    vllm.begin(list(asks.values()))
    return {i: Asked(ask, answer) for (i, ask), answer in zip(asks.items(), vllm.answers())}


def recorded(vllm: Vllm, n: int, adapters: int) -> list[list[Asked]]:
    """Returns stock vLLM's answers, in lists that run together. Its answers are part of later
    prompts."""
    rounds, rng = [], random.Random(n)
    for wave in waves(n, adapters):
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
    """Returns a request whose prompt Tern has seen."""
    return max((one.ask for one in rounds[-1] if not one.ask.steps), key=lambda ask: len(ask.prompt))


def write(folder: Path, shape: str) -> dict[str, Any]:
    """Writes the model and its adapters. Returns the options that these need."""
    model.write(folder, shape)
    for i in range(ADAPTERS[shape]):
        model.write_adapter(folder, shape, i + 1)
    return LORA if ADAPTERS[shape] else {}


@pytest.mark.parametrize("shape", sorted(ADAPTERS))
def test_answers_are_the_same_under_load(
    daemon: Daemon, nursery: Nursery, tmp_path: Path, pytestconfig: pytest.Config, shape: str
) -> None:
    n, folder = pytestconfig.getoption("requests"), tmp_path / shape
    options = OPTIONS | write(folder, shape)
    stock = Vllm(nursery, folder, None, options).ready()
    rounds = recorded(stock, n, ADAPTERS[shape])
    stock.stop()
    vllm = Vllm(nursery, folder, tern(daemon.socket), options).ready()
    found = compared(vllm, rounds)
    counted = vllm.counters()
    last = again(rounds)
    vllm.begin([last])
    assert vllm.answers()[0].cached > 0
    leaked = at_rest(daemon)  # while vLLM runs: all sessions have been closed
    vllm.stop()
    told = {name.removeprefix("vllm:").removeprefix("tern_"): n for name, n in counted.items()}
    print(f"{shape}: {found.words}; leaked_pages={leaked}; {told}")
    assert found.requests >= n and found.near <= found.requests // 50
    assert told["num_preemptions"] > 0 and told["matched"] > 0 and told["loaded"] > 0
    assert (told["refused"], told["failed"], told["lost"], leaked) == (0, 0, 0, 0)


def test_stock_vllm_is_wrong_where_requests_with_adapters_and_without_run_together(nursery: Nursery, tmp_path: Path) -> None:
    """Without Tern. Once this test fails, waves of both kinds can be merged (load.py)."""
    options = OPTIONS | write(tmp_path / "llama", "llama") | {"enable_prefix_caching": False}
    vllm = Vllm(nursery, tmp_path / "llama", None, options).ready()
    rng = random.Random(3)
    plain = Ask(words(rng, 100))
    adapted = [Ask(words(rng, 100), adapter=n) for n in (1, 2)]

    def together(*asks: Ask) -> list[Answer]:
        vllm.begin(asks)
        return vllm.answers()

    alone = [together(ask)[0] for ask in (plain, *adapted)]
    found = Compared()
    for one, said in zip(alone[1:], together(*adapted)):
        found.add(one, said)
    found.add(alone[0], together(plain, Ask(words(rng, 100)))[0])
    assert found.near == 0
    mixed = together(plain, *adapted)
    vllm.stop()
    for one, said in zip(alone[1:], mixed[1:]):
        found.add(one, said)
    with pytest.raises(AssertionError):
        found.add(alone[0], mixed[0])


def answer(*tokens: int, best: float = -0.1, second: float = -3.0) -> Answer:
    """Returns an answer. The second best of each token is the next token, or the one before."""
    return Answer((list(tokens), [[(token, best), (token ^ 1, second)] for token in tokens]), 0)


def test_the_comparison_sees_what_is_wrong() -> None:
    found = Compared()
    found.add(answer(2, 4), answer(2, 4))
    found.add(answer(2, 4, second=-0.10005), answer(2, 5, second=-0.10005))
    assert (found.requests, found.tokens, found.near) == (2, 3, 1)
    for wrong in (answer(2, 5), answer(2, 4, best=-0.1002), answer(2, 4, second=-3.0002)):
        with pytest.raises(AssertionError):
            Compared().add(answer(2, 4), wrong)
