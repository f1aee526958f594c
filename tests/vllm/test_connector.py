"""Stock vLLM over Tern: its answers equal those without Tern, to the last bit of each
log-probability, and the tokens that it does not compute come from Tern's pages."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import tern as libtern
from conftest import Tiny, at_rest, pool_of
from daemons import Daemon, run
from instances import Answer, Ask, Nursery, Vllm, tern
from tern.layout import Group

BACK_S = 120.0  # time in which vLLM joins a daemon that was started again
STOPPED_S = 6.0

def same(vllm: Vllm, tiny: Tiny, stock: dict[str, list[Answer]], cached: dict[str, int]) -> None:
    for name, prompt in tiny.prompts.items():
        answer = vllm.complete(prompt)
        assert answer.said == stock[name][0].said, name
        assert answer.cached == cached[name], name


def flip(daemon: Daemon, tiny: Tiny) -> None:
    """Changes one byte of the last page of "base", in a group of windows or states if there is one.
    No engine may do so: this is done by an engine of its own that maps the pool."""
    rows = pool_of(daemon)
    groups = [
        Group(
            row["group"],
            page_tokens=tiny.block,
            shape=(row["page_bytes"],),
            dtype="uint8",
            family=row["family"],
            window=row["window"],
            reserve=1 if row["window"] else 0,
        )
        for row in rows
    ]
    flipped = max(groups, key=lambda group: group.window)
    prompt = tiny.prompts["base"]
    with libtern.connect(daemon.socket) as connection:
        pool = connection.join("flipper").map_pool(int(rows[0]["pool"], 16), groups, align_tokens=tiny.block)
        with pool.session(libtern.Namespace(model=str(tiny.folder), kv_dtype="torch.bfloat16/None")) as s:
            assert s.match(prompt).written == tiny.whole(prompt)
            pages = pool.pages(flipped.name)
            pages[s.table(flipped.name)[tiny.whole(prompt) // tiny.block - 1], tiny.byte] ^= 0x40  # in an exponent
            del pages


def test_answers_are_the_same_and_survive_a_kill(
    daemon: Daemon, nursery: Nursery, tiny: Tiny, stock: dict[str, list[Answer]]
) -> None:
    first = tiny.start(nursery, tern(daemon.socket)).ready()
    same(first, tiny, stock, tiny.first)
    same(first, tiny, stock, tiny.again)
    assert at_rest(daemon) == 0

    # vLLM reads the bytes of the page.
    flip(daemon, tiny)
    assert first.complete(tiny.prompts["base"]).said != stock["base"][0].said
    flip(daemon, tiny)
    assert first.complete(tiny.prompts["base"]).said == stock["base"][0].said

    # vLLM is killed during a request; two others replace it, and share what it had.
    first.begin([Ask([7, *tiny.prompts["another"]], 500)])
    time.sleep(1)
    first.kill()
    two = [tiny.start(nursery, tern(daemon.socket)) for _ in range(2)]
    for vllm in two:
        same(vllm.ready(), tiny, stock, tiny.again)
    computed, brought = two[0].complete(tiny.new), two[1].complete(tiny.new)
    assert (computed.cached, brought.cached) == (0, tiny.whole(tiny.new))
    assert computed.said == brought.said
    for vllm in two:
        vllm.stop()
    assert at_rest(daemon) == 0


def test_answers_are_the_same_while_the_daemon_is_killed_and_started_again(
    daemon: Daemon, nursery: Nursery, tiny: Tiny, stock: dict[str, list[Answer]]
) -> None:
    vllm = tiny.start(nursery, tern(daemon.socket)).ready()
    same(vllm, tiny, stock, tiny.first)

    # The daemon is killed during a request that uses its pages, and stays away.
    vllm.begin([Ask(tiny.prompts["another"])])
    time.sleep(0.1)
    daemon.process.kill()
    daemon.process.wait()
    assert vllm.answers()[0].said == stock["another"][0].said
    same(vllm, tiny, stock, {name: 0 for name in tiny.prompts})

    # The daemon comes back with empty memory, and vLLM joins it beside its requests.
    daemon.process = run(Path(daemon.socket).parent, daemon.name).process
    end = time.monotonic() + BACK_S
    while (answer := vllm.complete(tiny.prompts["base"])).cached == 0:
        assert answer.said == stock["base"][0].said and time.monotonic() < end
    assert (answer.said, answer.cached) == (stock["base"][0].said, tiny.again["base"])
    for name, prompt in tiny.prompts.items():
        vllm.complete(prompt)
    same(vllm, tiny, stock, tiny.again)
    vllm.stop()
    assert at_rest(daemon) == 0


def test_answers_are_the_same_while_the_daemon_is_stopped(
    daemon: Daemon, nursery: Nursery, tiny: Tiny, stock: dict[str, list[Answer]]
) -> None:
    vllm = tiny.start(nursery, tern(daemon.socket)).ready()
    same(vllm, tiny, stock, tiny.first)

    # The daemon is stopped for longer than a call waits, during a request that continues after
    # that.
    vllm.begin([Ask(tiny.prompts["another"], 300)])
    time.sleep(0.1)
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    daemon.process.send_signal(signal.SIGCONT)
    (tokens, logprobs), wanted = vllm.answers()[0].said, stock["another"][0].said
    assert (tokens[: len(wanted[0])], logprobs[: len(wanted[0])]) == wanted

    daemon.process.send_signal(signal.SIGSTOP)
    same(vllm, tiny, stock, {name: 0 for name in tiny.prompts})

    # The daemon continues, and has what came before.
    daemon.process.send_signal(signal.SIGCONT)
    end = time.monotonic() + BACK_S
    while vllm.complete(tiny.prompts["base"]).cached == 0:
        assert time.monotonic() < end
    same(vllm, tiny, stock, tiny.again)
    vllm.stop()
    assert at_rest(daemon) == 0


def test_prefill_and_decode_on_two_hosts(
    two_hosts: list[Daemon], nursery: Nursery, tiny: Tiny, stock: dict[str, list[Answer]]
) -> None:
    prefill, decode = (tiny.start(nursery, tern(d.socket)) for d in two_hosts)
    for vllm in (prefill, decode):
        vllm.ready()
    for name, prompt in tiny.prompts.items():
        told = prefill.complete(prompt, tokens=1, transfer={"do_remote_decode": True}).transfer
        assert told and told["tern_tokens"] == tiny.whole(prompt)
        del told["remote_prefill_cached_tokens"]  # vLLM would report these tokens of the prefill as the decode's
        answer = decode.complete(prompt, transfer=told)
        assert answer.said == stock[name][0].said, name
        assert answer.cached == tiny.again[name], name
    for vllm in (prefill, decode):
        vllm.stop()
    for one in two_hosts:
        assert at_rest(one) == 0
