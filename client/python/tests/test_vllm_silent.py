"""A daemon that runs and does not answer: it is stopped, like a daemon whose host is out of memory.
vLLM's steps wait for one call, and an answer that came too late leaves no page that is unknown
here."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import Daemon, free_port, start, start_pair
from tern.vllm import scheduler as scheduling
from test_vllm import PROMPT, kill, prefilled
from vllm_rig import Asked, Instance, run

CALL_S = 1.5  # more than any call takes on a busy machine
SLACK_S = 4.0  # for a busy machine; two calls take longer than 5 s and this


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "CALL_MS", int(CALL_S * 1000))
    monkeypatch.setattr(scheduling, "CLOSE_AGAIN_S", 0.05)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    one = start(tmp_path, "host-c", free_port(), "host-d", free_port())
    yield one
    kill(one)


@pytest.fixture
def instance(daemon: Daemon) -> Iterator[Instance]:
    one = Instance(daemon.socket)
    yield one
    goes_on(daemon)
    answers_again(one)
    one.step()
    told = one.scheduler._s().pool.connection.stats()
    assert told["sessions"] == 0 and not one.scheduler._s()._closing
    one.close()


def stop(daemon: Daemon) -> None:
    daemon.process.send_signal(signal.SIGSTOP)


def goes_on(daemon: Daemon) -> None:
    daemon.process.send_signal(signal.SIGCONT)


def answers_again(one: Instance) -> None:
    """Ends the time during which the daemon is not called."""
    scheduler = one.scheduler._s()
    scheduler._late_until = 0.0
    time.sleep(0.1)


@pytest.mark.parametrize("when", ["extend", "commit"])
def test_a_request_whose_answer_was_late_is_saved_no_more(
    daemon: Daemon, instance: Instance, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon carries the call out all the same, and assigns or frees pages of the session that
    are unknown here."""
    r, scheduler = Asked("first", list(PROMPT)), instance.scheduler._s()
    instance.admit(r)
    instance.step(r, tokens=40)
    if when == "commit":
        compute = instance.compute

        def computes(r: Asked, end: int) -> None:
            stop(daemon)
            compute(r, end)

        monkeypatch.setattr(instance, "compute", computes)
    else:
        stop(daemon)
    instance.step(r, tokens=20)
    monkeypatch.undo()
    goes_on(daemon)
    answers_again(instance)
    for tokens in (20, 20):
        instance.step(r, tokens=tokens)
    assert "first" not in scheduler._kept and scheduler.counts.refused == 1
    instance.finish(r)
    assert run(instance, "again", PROMPT)[1] in (32, 48)  # and run() has compared all bytes
    assert run(instance, "once more", PROMPT)[1] == 96


def test_vllm_waits_for_one_call(daemon: Daemon, instance: Instance) -> None:
    running = [Asked(name, [n, *PROMPT]) for n, name in enumerate("abcd")]
    for r in running:
        instance.admit(r)
    stop(daemon)
    begun = time.monotonic()
    instance.step(*running)
    late = [Asked(name, [n, *PROMPT]) for n, name in enumerate("efgh")]
    for r in late:
        assert instance.admit(r) == 0
    instance.step(*late)
    for r in running + late:
        instance.finish(r)
    assert time.monotonic() - begun < CALL_S + SLACK_S
    assert instance.scheduler._s().counts.refused == 1


def test_requests_run_with_tern_again_when_it_answers(
    daemon: Daemon, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(instance, "first", PROMPT)
    monkeypatch.setattr(scheduling, "LATE_S", 0.2)
    stop(daemon)
    assert run(instance, "second", PROMPT)[1] == 0
    goes_on(daemon)
    time.sleep(0.3)
    assert run(instance, "third", PROMPT)[1] == 96


def test_a_reset_is_told_to_have_failed(daemon: Daemon, instance: Instance) -> None:
    run(instance, "first", PROMPT)
    run(instance, "second", PROMPT, cache_salt="salty")
    stop(daemon)
    begun = time.monotonic()
    assert instance.scheduler.reset_cache() is False
    assert time.monotonic() - begun < 5 + SLACK_S  # one call, for many namespaces
    goes_on(daemon)
    assert instance.scheduler.reset_cache() is True
    assert run(instance, "third", PROMPT)[1] == 0


def test_a_fetch_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PING_S", 0.05)
    pair = start_pair(tmp_path)
    prefill, decode = Instance(pair[0].socket), Instance(pair[1].socket)
    r = Asked("decode", list(PROMPT), kv_transfer_params=prefilled(prefill, PROMPT))
    stop(pair[0])  # so that the fetch does not end earlier
    assert decode.scheduler.get_num_new_matched_tokens(r, 0) == (None, False)
    stop(pair[1])
    end = time.monotonic() + 30
    while decode.scheduler.get_num_new_matched_tokens(r, 0)[0] is None:
        assert time.monotonic() < end, "it waits for ever"
        decode.step()
    assert decode.admit(r) == 0
    decode.step(r)
    counts = decode.scheduler._s().counts
    assert decode.holds(r, 100) and (counts.unfetched, counts.recomputed) == (1, 96)
    decode.finish(r)
    for daemon in pair:
        goes_on(daemon)
    for one in (prefill, decode):
        one.close()
    for daemon in pair:
        kill(daemon)
