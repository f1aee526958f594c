"""Stock vLLM's servers over two ranks on one host and over one rank on the other: a prompt that one
server prefills the other decodes, in both directions, and the server of two ranks finds what it had
when it was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import model
from conftest import rests, tokens
from daemons import Daemon, free_port
from instances import Nursery, Server, Vllm, tern
from test_kills import ask, proxy

OPTIONS: dict[str, Any] = {"dtype": "float32"}  # sums over ranks differ in their last bits
BLOCK = 32
LENGTHS = (70, 300, 513, 901)


def test_answers_are_the_same_over_other_numbers_of_ranks(
    two_hosts: list[Daemon], nursery: Nursery, tmp_path: Path
) -> None:
    folder = tmp_path / "llama"
    model.write(folder, "llama")
    asked = {way: [tokens(n, 7919 * (2 * way + 1)) for n in LENGTHS] for way in range(2)}
    stock = Vllm(nursery, folder, None, OPTIONS).ready()
    right = {way: [stock.complete(prompt).said[0] for prompt in asked[way]] for way in asked}
    stock.stop()

    def server(i: int, port: int) -> Server:
        return Server(nursery, folder, tern(two_hosts[i].socket), port, OPTIONS | {"tensor_parallel_size": 2 - i})

    servers = [server(i, free_port()) for i in range(2)]
    for one in servers:
        one.ready()
    for way, (prefill, decode) in enumerate((servers, servers[::-1])):
        with proxy(prefill, decode) as url:
            assert [ask(url, folder, prompt) for prompt in asked[way]] == right[way]
        told = {name: decode.counter(name) for name in ("fetched", "unfetched", "refused", "failed")}
        assert told == {"fetched": len(LENGTHS), "unfetched": 0, "refused": 0, "failed": 0}

    servers[0].kill()
    assert rests(two_hosts[0]) == 0
    servers[0] = server(0, servers[0].port).ready()
    assert [ask(servers[0].url, folder, prompt) for prompt in asked[0]] == right[0]
    assert servers[0].counter("matched") == sum((n - 1) // BLOCK * BLOCK for n in LENGTHS)
    for one in servers:
        one.kill()
    leaked = [rests(host) for host in two_hosts]
    assert leaked == [0, 0]
    print(f"2 ranks to 1 and back: {2 * len(LENGTHS)} prompts fetched, all answers right, also after SIGKILL; {leaked=}")
