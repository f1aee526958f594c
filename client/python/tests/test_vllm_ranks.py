"""tern.vllm with several workers, each of which has the KV of some heads, over daemons of two
regions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tern
from daemons import Daemon, configured, free_port, run as run_daemon, stop_pair
from tern.vllm import scheduler as scheduling
from tern.vllm.pages import layout_of
from tern.vllm.settings import Refused
from test_vllm import PROMPT, back, kill, until_lost, until_rejoined
from vllm_rig import HEADS, HYBRID, LINEAR, Asked, FullAttentionSpec, Instance, cache_config, of_rank, pages, run

RANKS = 2


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    """Two linked daemons."""
    names, ports = ("host-a", "host-b"), (free_port(), free_port())
    pair = []
    for i, name in enumerate(names):
        more = f"insecure_peers: true\npage_bytes_min: 256\nlisten: 127.0.0.1:{ports[i]}\n"
        more += f"peers:\n  - {{name: {names[1 - i]}, address: '127.0.0.1:{ports[1 - i]}', tenants: [lm]}}\n"
        pair.append(run_daemon(configured(tmp_path / name, f"memory: 16M, regions: {RANKS}", more), name))
    yield pair[0], pair[1]
    stop_pair((pair[0], pair[1]))


@pytest.fixture
def two(hosts: tuple[Daemon, Daemon]) -> Iterator[Instance]:
    one = Instance(hosts[0].socket, ranks=RANKS)
    yield one
    told = one.scheduler._s().pool.connection.stats()
    assert told["sessions"] == 0 and pages(one, "session") == 0
    one.close()


def test_the_next_instance_of_as_many_ranks_finds_a_prompt(hosts: tuple[Daemon, Daemon]) -> None:
    first = Instance(hosts[0].socket, ranks=RANKS)
    run(first, "first", PROMPT)
    beside = Instance(hosts[0].socket, "beside")
    assert run(beside, "first", PROMPT)[1] == 0  # a different number of ranks uses another pool
    for one in (first, beside):
        one.close()
    second = Instance(hosts[0].socket, ranks=RANKS)
    assert run(second, "second", PROMPT)[1] == 96
    second.close()


def test_tokens_are_counted_once_and_bytes_of_all_ranks(two: Instance) -> None:
    run(two, "first", PROMPT)
    run(two, "second", PROMPT)
    told = [rank.connector.get_kv_connector_stats() for rank in two.ranks]
    assert told[0] and told[1]
    both = told[0].aggregate(told[1]).data
    assert both == {"loaded": 96, "saved": 96, "copies": 12 * RANKS, "bytes": 12 * 1024}


def test_a_block_is_published_when_all_ranks_have_saved_it(two: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = two.ranks[1].connector._w()
    monkeypatch.setattr(slow, "saved", lambda: [])
    run(two, "first", PROMPT)
    assert run(two, "second", PROMPT[:40])[1] == 0
    monkeypatch.undo()
    two.step()
    assert run(two, "third", PROMPT)[1] == 96


def test_a_load_that_fails_at_one_rank_is_computed(two: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    run(two, "first", PROMPT)

    def fails(move: object, load: bool) -> None:
        raise IndexError("of this rank")

    monkeypatch.setattr(two.ranks[1].connector._w().copier, "copy", fails)
    r = Asked("second", list(PROMPT))
    assert two.admit(r) == 96
    two.loaded()
    monkeypatch.undo()
    assert r.num_computed_tokens == 0 and two.admit(r) == 0
    two.step(r)
    assert two.holds(r, len(PROMPT)) and two.scheduler._s().counts.failed == 1
    two.finish(r)


@pytest.mark.parametrize("specs", [(), HYBRID], ids=["full attention", "windows"])
@pytest.mark.parametrize(("prefill", "decode"), [(RANKS, 1), (1, RANKS), (RANKS, RANKS)])
def test_a_prompt_is_handed_over_to_another_number_of_ranks(
    hosts: tuple[Daemon, Daemon], prefill: int, decode: int, specs: Sequence[Any]
) -> None:
    ours, theirs = Instance(hosts[0].socket, "p", specs, prefill), Instance(hosts[1].socket, "d", specs, decode)
    r = Asked("first", list(PROMPT), kv_transfer_params={"do_remote_decode": True})
    ours.admit(r)
    ours.step(r)
    told = ours.finish(r)
    ours.step()
    assert run(theirs, "second", PROMPT, kv_transfer_params=told)[1] == 96  # run() has compared all bytes
    assert run(theirs, "third", PROMPT)[1] == 96
    counts = theirs.scheduler._s().counts
    assert (counts.fetched, counts.unfetched, counts.refused) == (1, 0, 0)
    for one in (ours, theirs):
        one.close()


def test_ranks_join_the_next_daemon_together(hosts: tuple[Daemon, Daemon], two: Instance) -> None:
    run(two, "first", PROMPT)
    kill(hosts[0])
    until_lost(two)
    hosts[0].process = back(hosts[0]).process
    until_rejoined(two)
    assert run(two, "second", PROMPT)[1] == 0
    assert run(two, "third", PROMPT)[1] == 96


def test_a_rank_that_has_joined_alone_joins_once_more(
    hosts: tuple[Daemon, Daemon], two: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(hosts[0])
    until_lost(two)
    other, worker = (rank.connector._w() for rank in two.ranks)
    assert worker._rejoin is not None
    join, failed = worker._rejoin._join, list[tern.Pool]()

    def once_lost() -> tern.Pool:
        pool = join()
        if not failed:
            failed.append(pool)
            while other.life == 0:
                time.sleep(0.01)
            pool.connection.close()
            raise tern.DaemonLost("behind its answer")
        return pool

    monkeypatch.setattr(worker._rejoin, "_join", once_lost)
    monkeypatch.setattr(scheduling, "GATHER_S", 0.2)
    hosts[0].process = back(hosts[0]).process
    until_rejoined(two)
    assert failed and other.life > worker.life >= 1  # on a busy machine the ranks gather late, and both join again
    run(two, "first", PROMPT)
    assert run(two, "second", PROMPT)[1] == 96


def test_what_cannot_be_divided_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="states of linear attention on 1 rank only"):
        layout_of(cache_config(*(of_rank(spec, RANKS) for spec in LINEAR)), RANKS, HEADS)
    with pytest.raises(Refused, match="each of 2 ranks has 2 heads of KV in a group, where the model has 2"):
        layout_of(cache_config(FullAttentionSpec()), RANKS, HEADS)


def test_fewer_heads_than_ranks_are_held_by_several() -> None:
    one = of_rank(FullAttentionSpec(), HEADS)
    group = layout_of(cache_config(one), 2 * HEADS, HEADS).groups[0]
    assert group.shape[1] == 1 and group.fields[0].axes[1].length == HEADS
