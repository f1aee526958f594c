"""tern.vllm over a real daemon, driven as vLLM would drive it. tests/vllm runs stock vLLM
itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tern
from daemons import Daemon, free_port, run as run_daemon, start, start_pair
from tern.vllm import fetches, rejoin, scheduler as scheduling
from tern.vllm.jobs import Steps, Work
from tern.vllm.pages import layers_of, layout_of
from tern.vllm.pool import pools_of
from tern.vllm.scheduler import Counts
from tern.vllm.settings import Refused, check_config, check_version, settings, size
from tern.vllm.worker import Copied
from vllm_rig import (
    BLOCK,
    BLOCKS,
    LAYERS,
    Asked,
    HYBRID,
    FullAttentionSpec,
    HostTensor,
    Instance,
    SlidingWindowSpec,
    cache_config,
    forget,
    pages,
    run,
    vllm_config,
)

# vllm_rig has put the stubs on the path
from tern.vllm.connector import TernConnector, namespace_of  # isort: skip
from tern.vllm.metrics import COUNTERS  # isort: skip
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole  # isort: skip

PROMPT = [(i * 7919) % 1000 for i in range(100)]


@pytest.fixture
def instance(daemons: tuple[Daemon, Daemon]) -> Iterator[Instance]:
    one = Instance(daemons[0].socket)
    forget(one)
    yield one
    told = one.scheduler._s().pool.connection.stats()
    assert told["sessions"] == 0 and pages(one, "session") == 0  # however the test's requests ended
    one.close()


# ---- configurations that are refused by name


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({}, "lacks 'socket'"),
        ({"socket": "/s"}, "lacks 'pool_bytes'"),
        ({"socket": "/s", "pool_bytes": "4 GB"}, "pool_bytes='4 GB': pass a number of bytes"),
        ({"socket": "/s", "pool_bytes": True}, "pool_bytes=True"),
        ({"socket": "/s", "pool_bytes": 0}, "pool_bytes=0"),
        ({"socket": "/s", "pool_bytes": "4G", "sokcet": 1}, "has 'sokcet': the keys are socket, pool_bytes"),
    ],
)
def test_settings_say_what_is_wrong(extra: dict[str, object], says: str) -> None:
    with pytest.raises(Refused, match=says):
        settings(extra, "id")


def test_settings() -> None:
    said: dict[str, object] = {"socket": "/s", "pool_bytes": "4G"}
    assert settings(said, "id").engine == "vllm-id"
    names = [settings(said | {"engine": "one"}, "id", replica).engine for replica in (0, 1)]
    assert names == ["one", "one_dp1"] and settings(said, "id_dp1", 1).engine == "vllm-id_dp1"
    assert [size("n", text) for text in (5, "5", "5K", "5M")] == [5, 5, 5 << 10, 5 << 20]


@pytest.mark.parametrize(
    ("part", "name", "value", "says"),
    [
        ("kv_transfer_config", "kv_load_failure_policy", "fail", "use 'recompute'"),
        ("kv_transfer_config", "kv_role", "kv_producer", "use 'kv_both'"),
        ("parallel_config", "tensor_parallel_size", 3, "tensor_parallel_size=3: tern.vllm supports 1, 2, 4, 8"),
        ("parallel_config", "pipeline_parallel_size", 2, "pipeline_parallel_size=2"),
        ("parallel_config", "data_parallel_size", 2, "data_parallel_size=2"),
        ("parallel_config", "decode_context_parallel_size", 2, "decode_context_parallel_size=2"),
        ("parallel_config", "nnodes", 2, "nnodes=2"),
        ("model_config", "is_multimodal_model", True, "multi-modal"),
        ("model_config", "is_diffusion", True, "diffusion models"),
        ("model_config", "is_prefix_caching_supported", False, "cannot reuse prefixes"),
        ("cache_config", "cache_dtype", "fp8", "kv_cache_dtype='fp8'"),
        (None, "speculative_config", object(), "speculative decoding"),
    ],
)
def test_configurations_are_refused(part: str | None, name: str, value: object, says: str) -> None:
    config = vllm_config("/s")
    check_config(config)
    setattr(getattr(config, part) if part else config, name, value)
    with pytest.raises(Refused, match=says):
        check_config(config)


def test_it_is_refused_among_others() -> None:
    class MultiConnector:
        def __init__(self) -> None:
            TernConnector(vllm_config("/s"), KVConnectorRole.SCHEDULER, cache_config())

    MultiConnector.__init__.__code__ = MultiConnector.__init__.__code__.replace(co_qualname="MultiConnector.__init__")
    with pytest.raises(Refused, match="name TernConnector itself"):
        MultiConnector()


def test_versions_are_refused() -> None:
    for version in ("0.32.0", "0.32", "0.32.5"):
        check_version(version)
    for version in ("0.31.9", "0.33.0", "0.320.0", "1.0.0"):
        with pytest.raises(Refused, match="install one of these"):
            check_version(version)


def test_a_version_is_refused_before_its_names_are_missed(tmp_path: Path) -> None:
    (tmp_path / "vllm.py").write_text('__version__ = "0.33.0"')
    asked = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tern.vllm.connector"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert told.returncode == 1 and "Refused: vLLM 0.33.0: tern.vllm was made for 0.32" in told.stderr, told.stderr


def spec(**other: object) -> FullAttentionSpec:
    made = FullAttentionSpec()
    for name, value in other.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (cache_config(FullAttentionSpec(), type("MLAAttentionSpec", (FullAttentionSpec,), {})()), "that is MLAAttentionSpec"),
        (cache_config(spec(sliding_window=64)), "start without --disable-hybrid-kv-cache-manager"),
        (cache_config(spec(attention_chunk_size=64)), "chunked attention"),
        (cache_config(spec(non_causal=True)), "in both directions"),
        (cache_config(SlidingWindowSpec()), "no layer with full attention"),
        (cache_config(FullAttentionSpec(), SlidingWindowSpec(1)), "sliding_window=1"),
        (cache_config(spec(kv_quant_mode=SimpleNamespace(value=1))), "quantized"),
        (cache_config(spec(page_size_padded=8192)), "padded"),
        (cache_config(spec(page_size_bytes=8192)), "a block of a layer has 8192 bytes"),
        (cache_config(spec(dtype=SimpleNamespace(itemsize=8))), "elements of 8 bytes"),
    ],
)
def test_models_are_refused(config: object, says: str) -> None:
    with pytest.raises(Refused, match=says):
        layout_of(config)


def test_tensors_are_refused() -> None:
    layout = layout_of(cache_config())

    def made(*, at: tuple[int, ...] = (BLOCKS, 2, BLOCK, 8), **more: Any) -> dict[str, HostTensor]:
        return {layer: HostTensor(np.zeros(at, np.uint16), **more) for layer in LAYERS}

    assert [one.stride for one in layers_of(layout, made(), BLOCKS)[0]] == [512, 512]
    turned = {layer: HostTensor(np.zeros((BLOCKS, BLOCK, 2, 8), np.uint16).swapaxes(1, 2)) for layer in LAYERS}
    for tensors, says in (
        (made(device="cuda"), "host memory only"),
        (made(at=(BLOCKS, 2, 32, 8)), "of shape"),
        (made(dtype="torch.float16"), "torch.float16"),
        (turned, "one run of bytes"),
        ({"l0": made()["l0"]}, "no KV tensor for layer 'l1'"),
        (made() | {"l2": made()["l0"]}, "no group names, such as 'l2'"),
    ):
        with pytest.raises(Refused, match=says):
            layers_of(layout, tensors, BLOCKS)


def test_pools_of_other_shapes_have_other_names() -> None:
    names = {layout_of(cache_config(s)).groups[0].name for s in (spec(), spec(dtype=Half()))}
    assert len(names) == 2  # equal bytes of another type are another pool
    few, many = (layout_of(cache_config(*specs)).groups for specs in ([FullAttentionSpec()], HYBRID[1:]))
    assert few[0].name != many[0].name


def test_pools_of_another_size_are_not_shared(instance: Instance) -> None:
    pool, layout = instance.scheduler._s().pool, instance.worker._layout
    for nbytes, found in ((1 << 20, [pool.handle]), ((1 << 20) + 1023, [pool.handle]), ((1 << 20) + 1024, [])):
        assert pools_of(pool.connection, layout, nbytes) == found
    assert pools_of(pool.connection, layout, (1 << 20) - 1) == []


class Half:
    itemsize = 2

    def __str__(self) -> str:
        return "torch.float16"


# ---- steps


def test_a_step_passes_behind_all_before_it() -> None:
    steps = Steps()
    steps.begin(1, 2)
    steps.begin(2, 1)
    steps.end_one(2)
    assert steps.passed == 0  # step 1 has work left
    steps.end_one(1)
    assert steps.passed == 0
    steps.end_one(1)
    assert steps.passed == 2
    steps.begin(3, 0)
    assert steps.passed == 3


# ---- requests


def test_a_prompt_comes_back(instance: Instance) -> None:
    _, found = run(instance, "first", PROMPT)
    assert found == 0
    r, found = run(instance, "second", PROMPT)
    assert found == 96
    counts = instance.scheduler._s().counts
    assert (counts.queried, counts.matched, counts.refused, counts.full) == (200, 96, 0, 0)
    copied = instance.worker._w().copied
    assert (copied.loaded, copied.saved, copied.copies, copied.bytes) == (96, 96, 12, 12 * 1024)


def test_the_last_token_is_computed(instance: Instance) -> None:
    run(instance, "first", PROMPT[:96])
    _, found = run(instance, "second", PROMPT[:96])
    assert found == 80  # vLLM has to compute one token


def test_what_vllm_has_itself_is_not_loaded(instance: Instance) -> None:
    run(instance, "first", PROMPT)
    r = Asked("second", list(PROMPT))
    instance.give(r, 0, 32)
    instance.compute(r, 32)
    assert instance.admit(r) == 64
    instance.loaded()
    assert instance.holds(r, 96)
    assert instance.worker._w().copied.loaded == 64
    instance.finish(r)


def test_an_answer_is_saved_block_by_block(instance: Instance) -> None:
    r = Asked("first", list(PROMPT))
    instance.admit(r)
    instance.step(r, tokens=40)  # a prompt in chunks
    instance.step(r)
    for token in range(30):
        r.all_token_ids.append(token)
        instance.step(r)
    instance.finish(r)
    _, found = run(instance, "second", [*r.all_token_ids, 5])
    assert found == 128  # of 130 tokens


def test_what_is_not_a_whole_block_is_not_saved(instance: Instance) -> None:
    run(instance, "first", PROMPT[:15])
    assert instance.worker._w().copied.saved == 0


def test_namespaces_are_apart(instance: Instance) -> None:
    run(instance, "first", PROMPT)
    assert run(instance, "salted", PROMPT, cache_salt="salty")[1] == 0
    assert run(instance, "salted again", PROMPT, cache_salt="salty")[1] == 96
    adapter = SimpleNamespace(lora_name="x", lora_path="/x")
    assert run(instance, "adapted", PROMPT, lora_request=adapter)[1] == 0


def test_what_changes_a_model_is_part_of_its_name() -> None:
    told = settings({"socket": "/s", "pool_bytes": "1M"}, "id")
    names = [namespace_of(vllm_config("/s"), told, Asked(name, [])) for name in "ab"]
    for name, value in (("hf_overrides", {"rope_theta": 1e6}), ("hf_config_path", "/other")):
        config = vllm_config("/s")
        setattr(config.model_config, name, value)
        names.append(namespace_of(config, told, Asked("a", [])))
    assert names[0] == names[1] and len(set(names)) == 3


def test_the_longest_prompt_is_part_of_the_name_where_it_chooses_factors_of_rope() -> None:
    told, names = settings({"socket": "/s", "pool_bytes": "1M"}, "id"), []
    for rope in ({"rope_type": "default"}, {"full_attention": {"rope_type": "longrope"}}):
        for longest in (4096, 8192):
            config = vllm_config("/s")
            config.model_config.hf_text_config.rope_parameters = rope
            config.model_config.max_model_len = longest
            names.append(namespace_of(config, told))
    assert names[0] == names[1] and len(set(names)) == 3


def test_tokens_that_stand_for_something_else_are_left_out(instance: Instance) -> None:
    run(instance, "first", PROMPT, mm_features=["an image"])
    assert run(instance, "second", PROMPT)[1] == 0
    assert run(instance, "third", PROMPT, prompt_embeds=object())[1] == 0


def test_a_reset_forgets(instance: Instance) -> None:
    run(instance, "first", PROMPT)
    assert instance.scheduler.reset_cache() is True
    assert run(instance, "second", PROMPT)[1] == 0


def test_a_reset_forgets_what_the_last_life_had(daemons: tuple[Daemon, Daemon]) -> None:
    for found in (0, 96, 0):
        one = Instance(daemons[0].socket, "reset")
        if found == 0:
            assert one.scheduler.reset_cache() is True
        assert run(one, "first", PROMPT)[1] == found
        one.close()


@pytest.mark.parametrize("salt", ["\ud800", "nul\0", "s" * 256])
def test_a_name_that_tern_cannot_have_is_refused(instance: Instance, salt: str) -> None:
    r = Asked("first", list(PROMPT), cache_salt=salt)
    assert [instance.scheduler.get_num_new_matched_tokens(r, 0) for _ in range(3)] == 3 * [(0, False)]
    assert run(instance, "first", PROMPT, cache_salt=salt)[1] == 0
    assert instance.scheduler._s().counts.refused == 1  # however often vLLM asks


def test_names_are_bounded_until_a_reset(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "SPACES_MAX", 1)
    for salt, found in (("", 0), ("", 96), ("salty", 0), ("salty", 0)):
        assert run(instance, "a", PROMPT, cache_salt=salt)[1] == found
    assert instance.scheduler._s().counts.refused == 2
    assert instance.scheduler.reset_cache() is True
    for found in (0, 96):
        assert run(instance, "a", PROMPT, cache_salt="salty")[1] == found


def test_a_reset_is_for_requests_under_way_too(instance: Instance) -> None:
    r = Asked("first", list(PROMPT))
    instance.admit(r)
    instance.step(r)
    assert instance.scheduler.reset_cache() is True
    instance.drop(r)  # the request is preempted, and comes again
    assert instance.admit(r) == 0
    instance.step(r)
    assert instance.holds(r, 100)
    instance.finish(r)


# ---- failures


def test_a_failed_load_is_computed(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    run(instance, "first", PROMPT)
    r = Asked("second", list(PROMPT))
    instance.admit(r)
    monkeypatch.setattr(instance.worker._w().copier.groups[0], "pages", 1)  # the worker finds none of the scheduler's pages
    instance.loaded()
    monkeypatch.undo()
    counts = instance.scheduler._s().counts
    assert (r.num_computed_tokens, counts.failed, counts.recomputed) == (0, 1, 96)
    assert instance.admit(r) == 0  # not tried again
    instance.step(r)
    assert instance.holds(r, 100)
    instance.finish(r)
    assert run(instance, "third", PROMPT)[1] == 96


def test_a_step_that_fails_publishes_nothing(instance: Instance) -> None:
    r = Asked("first", list(PROMPT))
    instance.admit(r)
    instance.step(r, fails=True)
    assert run(instance, "second", PROMPT)[1] == 0
    instance.scheduler._s().reported([1], [])
    instance.finish(r)


def test_a_request_that_ends_in_its_step_is_saved(instance: Instance) -> None:
    """vLLM reports a finished request before it passes on the worker's report."""
    r, scheduler = Asked("first", list(PROMPT)), instance.scheduler._s()
    instance.admit(r)
    reported, late = scheduler.reported, []
    scheduler.reported = lambda *told: late.append(told)  # type: ignore[method-assign]
    instance.step(r)
    instance.finish(r)
    scheduler.reported = reported  # type: ignore[method-assign]
    scheduler.reported(*late[0])
    assert run(instance, "second", PROMPT)[1] == 96


def test_a_preempted_request_begins_anew(instance: Instance) -> None:
    r = Asked("first", list(PROMPT))
    instance.admit(r)
    instance.step(r)
    instance.begins_again(r, 96)


def test_a_load_that_fails_behind_its_request_is_forgotten(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    run(instance, "first", PROMPT)
    r = Asked("second", list(PROMPT))
    instance.admit(r)
    monkeypatch.setattr(instance.worker._w().copier.groups[0], "pages", 1)
    instance.finish(r, "FINISHED_ABORTED")
    instance.loaded()
    monkeypatch.undo()
    scheduler = instance.scheduler._s()
    assert (scheduler.counts.failed, scheduler.counts.recomputed) == (1, 0) and not scheduler._without
    assert run(instance, "second", PROMPT)[1] == 96


def test_all_of_a_prompt_is_computed_where_vllm_reads_no_prefixes(instance: Instance) -> None:
    """For log-probabilities of a prompt vLLM asks Tern, and ignores the answer."""
    run(instance, "first", PROMPT)
    r = Asked("second", list(PROMPT), skip_reading_prefix_cache=True)
    assert instance.admit(r) == 0
    instance.step(r)
    instance.finish(r)
    assert instance.worker._w().copied.saved == 96  # only the first one


def test_a_block_that_is_not_there_ends_the_save_alone(instance: Instance) -> None:
    r = Asked("first", list(PROMPT))
    instance.admit(r)
    instance.give(r, 0, 100)
    lost, r.blocks[0][2] = r.blocks[0][2], 0
    instance.step(r)
    r.blocks[0][2] = lost
    assert instance.worker._w().copied.saved == 0 and instance.scheduler._s().counts.refused == 1
    assert run(instance, "second", PROMPT)[1] == 0
    instance.finish(r)


def test_pages_of_an_aborted_load_stay_until_it_has_ended(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    run(instance, "first", PROMPT)
    worker, opened = instance.worker._w(), Event()
    gate = worker._thread.submit(opened.wait, 30)
    r = Asked("second", list(PROMPT))
    instance.admit(r)
    instance.step()  # the load is under way, behind the gate
    instance.finish(r, "FINISHED_ABORTED")
    one = instance.scheduler._s()
    with one.pool.session(tern.Namespace(model="other")) as greedy:
        greedy.match([])
        everything = pages(instance, "total") * BLOCK
        with pytest.raises(tern.Exhausted) as why:
            greedy.extend(allocated=everything)
        assert why.value.until_step == one._step > worker._told
        opened.set()
        gate.result()
        instance.loaded()
        one.pool.connection.wait_published(one._step)
        greedy.extend(allocated=everything)


def test_a_full_pool_is_counted_and_vllm_goes_on(daemons: tuple[Daemon, Daemon]) -> None:
    small = Instance(daemons[0].socket, "small")
    scheduler = small.scheduler._s()
    forget(small)
    held = scheduler.pool.session(tern.Namespace(model="other"))
    held.match([])
    held.extend(allocated=(pages(small, "total") - 3) * BLOCK)
    r = Asked("first", list(PROMPT))
    small.admit(r)
    small.step(r, tokens=96)
    assert scheduler.counts.full == 1 and small.worker._w().copied.saved == 0
    held.close(step=tern.STEP_NONE)
    r.all_token_ids += range(12)
    small.step(r)
    small.finish(r)
    assert run(small, "second", PROMPT)[1] == 96  # the next save has saved all of it
    small.close()


# ---- statistics


def test_counters_tell_what_was_added(instance: Instance) -> None:
    run(instance, "first", PROMPT)
    run(instance, "second", PROMPT)
    told = instance.scheduler.get_kv_connector_stats()
    copied = instance.worker.get_kv_connector_stats()
    assert told and copied
    assert told.data == {"queried": 200, "matched": 96}
    assert copied.data == {"loaded": 96, "saved": 96, "copies": 12, "bytes": 12 * 1024}
    assert instance.scheduler.get_kv_connector_stats() is None  # nothing has changed
    both = TernConnector.build_kv_connector_stats(told.data)
    assert both and both.aggregate(copied).aggregate(copied).reduce()["loaded"] == 192
    counters: dict[str, list[object]] = {}

    class Counter:
        def __init__(self, name: str, documentation: str, labelnames: list[str]) -> None:
            self.name = name

        def labels(self, *values: object) -> Counter:
            return self

        def inc(self, n: int) -> None:
            counters.setdefault(self.name, []).append(n)

    metrics = TernConnector.build_prom_metrics(None, {"Counter": Counter}, ["model"], {0: ["tiny"]})
    assert metrics
    metrics.observe(both.data)
    assert counters["vllm:tern_matched"] == [96] and len(counters) == 6


def test_every_counter_has_words() -> None:
    assert set(COUNTERS) == {f.name for kind in (Counts, Copied) for f in fields(kind)}


# ---- instances


def test_instances_share_a_pool(instance: Instance, daemons: tuple[Daemon, Daemon]) -> None:
    run(instance, "first", PROMPT)
    one = instance.scheduler._s()
    one.pool.connection.wait_published(one._step)
    other = Instance(daemons[0].socket, "b")
    assert other.scheduler._s().pool.handle == instance.scheduler._s().pool.handle
    assert run(other, "second", PROMPT)[1] == 96
    other.close()


def test_the_pool_outlives_its_instance(daemons: tuple[Daemon, Daemon]) -> None:
    first = Instance(daemons[0].socket, "c")
    run(first, "first", [*PROMPT, 1])
    first.close()
    again = Instance(daemons[0].socket, "c")
    assert run(again, "second", [*PROMPT, 1])[1] == 96
    again.close()


# ---- the daemon is lost and comes back


def kill(daemon: Daemon) -> None:
    daemon.process.kill()
    daemon.process.wait()


def until_lost(one: Instance) -> None:
    """Waits until the loss is noticed: the kernel may close a process's sockets after its end."""
    for _ in range(2000):
        one.step()
        if one.scheduler._s()._lost:
            return
        time.sleep(0.001)
    raise AssertionError("the daemon is lost, and no step notices it")


def back(daemon: Daemon) -> Daemon:
    return run_daemon(Path(daemon.socket).parent, daemon.name)


def until_rejoined(one: Instance) -> None:
    for _ in range(2000):
        one.step()
        if not one.scheduler._s()._lost:
            return
        time.sleep(0.01)
    raise AssertionError("the daemon is back, and it does not join")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Daemon]:
    daemon = start(tmp_path, "host-c", free_port(), "host-d", free_port())
    yield daemon
    kill(daemon)


def test_requests_go_on_without_the_daemon_and_with_the_next_one(alone: Daemon) -> None:
    one = Instance(alone.socket)
    scheduler = one.scheduler._s()
    for life in (1, 2):
        run(one, "first", PROMPT)
        r = Asked("second", list(PROMPT))
        assert one.admit(r) == 96
        kill(alone)
        one.loaded()
        assert one.holds(r, 96)  # the mapping still exists
        one.step(r)
        assert run(one, "third", PROMPT)[1] == 0
        alone.process = back(alone).process
        until_rejoined(one)
        one.step(r)  # requests that began before continue without Tern
        one.finish(r)
        assert (scheduler.counts.lost, scheduler.counts.rejoined) == (life, life)
        assert run(one, "fourth", PROMPT)[1] == 0  # the daemon has new memory
        assert run(one, "fifth", PROMPT)[1] == 96
    assert scheduler.counts.refused == 0
    assert scheduler.pool.connection.stats()["sessions"] == 0
    one.close()


def test_what_a_step_was_to_save_is_dropped_when_it_loses_the_daemon(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (Asked(name, [*PROMPT, n]) for n, name in enumerate("ab"))
    for r in (a, b):
        instance.admit(r)
    scheduler, extend = instance.scheduler._s(), tern.Session.extend

    def loses(self: tern.Session, **more: Any) -> tern.Result:
        if self is scheduler._kept["b"].session:
            raise tern.DaemonLost("it is lost")
        return extend(self, **more)

    monkeypatch.setattr(tern.Session, "extend", loses)
    instance.step(a, b)
    monkeypatch.undo()
    assert instance.worker._w().copied.saved == 0  # the worker may unmap the pool now
    until_rejoined(instance)  # to the same daemon
    for r in (a, b):
        instance.finish(r)
    assert run(instance, "again", [*PROMPT, 0])[1] == 0
    assert run(instance, "once more", [*PROMPT, 0])[1] == 96


def test_a_daemon_that_was_started_again_between_both_sides_ends_the_start(instance: Instance) -> None:
    with pytest.raises(Refused, match="start vLLM again"):
        instance.worker._w().load(Work(pool=instance.scheduler._s().pool.handle + 1, step=1))


def test_an_attempt_that_ends_after_it_was_closed_comes_to_nothing() -> None:
    begun, go_on, closed = Event(), Event(), Event()

    def join() -> Any:
        begun.set()
        go_on.wait(30)
        return SimpleNamespace(connection=SimpleNamespace(close=closed.set))

    attempt = rejoin.Rejoin(join)
    assert begun.wait(30)
    attempt.close()
    go_on.set()
    assert closed.wait(30) and attempt.pool() is None


def test_an_attempt_to_join_that_fails_is_repeated(alone: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Instance(alone.socket)
    kill(alone)
    until_lost(one)
    alone.process = back(alone).process
    scheduler = one.scheduler._s()
    failed: list[int] = []
    follow = scheduler.follow

    def once_not(handle: int) -> tern.Pool:
        if not failed:
            failed.append(handle)
            raise tern.TimedOut("late")
        return follow(handle)

    monkeypatch.setattr(scheduler, "follow", once_not)
    until_rejoined(one)
    assert failed and scheduler.counts.rejoined == 1
    run(one, "first", PROMPT)
    assert run(one, "second", PROMPT)[1] == 96
    one.close()


def test_an_instance_ends_while_the_daemon_is_lost(alone: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejoin, "LONGEST_S", 0.1)
    one = Instance(alone.socket)
    kill(alone)
    until_lost(one)
    assert (attempts := one.worker._w()._rejoin) is not None
    begun = time.monotonic()
    one.close()
    assert time.monotonic() - begun < 30
    alone.process = back(alone).process
    time.sleep(0.5)
    assert attempts.pool() is None
    with tern.connect(alone.socket) as c:
        assert c.stats()["pools"] == []  # no instance has joined


# ---- closes


def test_a_close_that_timed_out_is_repeated(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(self: tern.Session, **more: Any) -> None:
        raise tern.TimedOut("the socket is full")

    for pause in ("CLOSE_AGAIN_S", "LATE_S"):
        monkeypatch.setattr(scheduling, pause, 0.05)
    monkeypatch.setattr(tern.Session, "close", late)
    run(instance, "first", PROMPT)
    instance.step()
    monkeypatch.undo()
    assert instance.scheduler._s().pool.connection.stats()["sessions"] == 1
    time.sleep(0.1)
    instance.step()  # and the fixture finds no open session
    assert not instance.scheduler._s()._closing


def test_no_session_is_begun_while_many_closes_are_to_be_repeated(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(self: tern.Session, **more: Any) -> None:
        raise tern.Busy("a turn is in flight")

    scheduler = instance.scheduler._s()
    with monkeypatch.context() as m:
        m.setattr(scheduling, "CLOSING_MAX", 2)
        m.setattr(tern.Session, "close", busy)
        for i in range(4):
            run(instance, str(i), PROMPT)
        assert len(scheduler._closing) == 2 and scheduler.counts.refused == 2
    scheduler._close_at = 0.0
    instance.step()


# ---- separate prefill and decode

HAND_OVER: dict[str, Any] = {"do_remote_decode": True}


@pytest.fixture
def decode(daemons: tuple[Daemon, Daemon]) -> Iterator[Instance]:
    one = Instance(daemons[1].socket, "decode")
    forget(one)
    yield one
    told = one.scheduler._s().pool.connection.stats()
    assert told["sessions"] == 0 and pages(one, "session") == 0
    one.close()


def prefilled(instance: Instance, prompt: list[int], status: str = "FINISHED_LENGTH_CAPPED") -> dict[str, Any] | None:
    """A prefill request ends before the report of its last step arrives, as in vLLM."""
    r, scheduler = Asked("prefill", list(prompt), kv_transfer_params=HAND_OVER), instance.scheduler._s()
    instance.admit(r)
    instance.loaded()
    reported, late = scheduler.reported, []
    scheduler.reported = lambda *told: late.append(told)  # type: ignore[method-assign]
    instance.step(r)
    told = instance.finish(r, status)
    scheduler.reported = reported  # type: ignore[method-assign]
    scheduler.reported(*late[0])
    return told


def test_a_prompt_is_handed_over(instance: Instance, decode: Instance) -> None:
    told = prefilled(instance, PROMPT)
    assert told and (told["do_remote_prefill"], told["tern_tokens"]) == (True, 96)
    _, found = run(decode, "decode", PROMPT, kv_transfer_params=told)
    assert found == 96
    counts = decode.scheduler._s().counts
    assert (counts.fetched, counts.unfetched, counts.refused) == (1, 0, 0)
    assert instance.scheduler._s().counts.refused == 0
    copied = decode.worker._w().copied
    assert (copied.loaded, copied.saved) == (96, 0)
    assert run(decode, "again", PROMPT)[1] == 96  # the prompt stays at the decode host


def test_a_prompt_that_prefill_had_is_handed_over(instance: Instance, decode: Instance) -> None:
    run(instance, "first", PROMPT)
    assert run(decode, "decode", PROMPT, kv_transfer_params=prefilled(instance, PROMPT))[1] == 96


def test_a_ticket_is_good_for_once(instance: Instance, decode: Instance) -> None:
    told = prefilled(instance, PROMPT)
    run(decode, "decode", PROMPT, kv_transfer_params=told)
    forget(decode)
    assert run(decode, "again", PROMPT, kv_transfer_params=told)[1] == 0  # vLLM computed it
    counts = decode.scheduler._s().counts
    assert (counts.unfetched, counts.recomputed) == (1, 96)


def test_what_decode_has_uses_the_ticket_up(instance: Instance, decode: Instance) -> None:
    """Otherwise the prefill host would keep the pages until the ticket expires."""
    run(decode, "first", PROMPT)
    told = prefilled(instance, PROMPT)
    assert told and run(decode, "decode", PROMPT, kv_transfer_params=told)[1] == 96
    assert decode.scheduler._s().counts.fetched == 1
    with pytest.raises(tern.Gone):
        instance.scheduler._s().pool.connection.ticket_drop(told["tern_ticket"])


@pytest.fixture
def beside(daemons: tuple[Daemon, Daemon]) -> Iterator[Instance]:
    """Decodes at the daemon of `instance`, where a ticket is BUSY until the step of its pages has
    passed."""
    one = Instance(daemons[0].socket, "beside")
    yield one
    one.close()


def handed_over_early(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    monkeypatch.setattr(instance.worker._w(), "_publish", lambda: None)
    told = prefilled(instance, PROMPT)
    monkeypatch.undo()
    return told


def test_a_ticket_that_is_busy_is_asked_for_again(
    instance: Instance, beside: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = Asked("decode", list(PROMPT), kv_transfer_params=handed_over_early(instance, monkeypatch))
    end = time.monotonic() + 4 * fetches.AGAIN_S
    while time.monotonic() < end:  # the ticket is asked for several times
        assert beside.scheduler.get_num_new_matched_tokens(r, 0) == (None, False)
        time.sleep(0.001)
    instance.worker._w()._publish()
    assert beside.admit(r) == 96
    beside.loaded()
    assert beside.holds(r, 96)
    beside.step(r)
    beside.finish(r)
    counts = beside.scheduler._s().counts
    assert (counts.fetched, counts.unfetched, counts.refused) == (1, 0, 0)


def test_a_ticket_that_stays_busy_is_given_up(
    instance: Instance, beside: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = handed_over_early(instance, monkeypatch)
    monkeypatch.setattr(fetches, "FETCH_S", 0.3)
    begun = time.monotonic()
    assert run(beside, "decode", PROMPT, kv_transfer_params=told)[1] == 0  # vLLM computed it
    assert time.monotonic() - begun < 20  # FETCH_S is 30 by default
    counts = beside.scheduler._s().counts
    assert (counts.fetched, counts.unfetched, counts.recomputed) == (0, 1, 96)
    instance.worker._w()._publish()
    assert told
    instance.scheduler._s().pool.connection.ticket_drop(told["tern_ticket"])


def test_only_a_whole_answer_is_handed_over(instance: Instance) -> None:
    assert prefilled(instance, PROMPT[:15]) is None  # no whole block
    assert prefilled(instance, PROMPT, "FINISHED_ABORTED") is None


@pytest.mark.parametrize(
    "wrong", [{"tern_tokens": 112}, {"tern_tokens": 50}, {"tern_tokens": "96"}, {"tern_ticket": 5}]
)
def test_a_ticket_of_something_else_is_refused(decode: Instance, wrong: dict[str, Any]) -> None:
    told = {"do_remote_prefill": True, "tern_ticket": "t", "tern_tokens": 96} | wrong
    assert run(decode, "decode", PROMPT, kv_transfer_params=told)[1] == 0
    assert decode.scheduler._s().counts.refused == 1


def test_a_ticket_is_left_where_vllm_would_not_wait_for_it(instance: Instance, decode: Instance) -> None:
    r = Asked("decode", list(PROMPT), kv_transfer_params=prefilled(instance, PROMPT), skip_reading_prefix_cache=True)
    assert decode.admit(r) == 0
    decode.step(r)  # tokens that vLLM computes and tokens of a fetch do not overlap
    decode.finish(r)
    counts = decode.scheduler._s().counts
    assert (counts.fetched, counts.unfetched, counts.refused) == (0, 1, 0)
    assert run(decode, "again", PROMPT)[1] == 96
    assert r.kv_transfer_params
    instance.scheduler._s().pool.connection.ticket_drop(r.kv_transfer_params["tern_ticket"])


def test_a_fetch_ends_with_its_daemon(tmp_path: Path) -> None:
    pair = start_pair(tmp_path)
    prefill, decode = Instance(pair[0].socket), Instance(pair[1].socket)
    run(decode, "first", PROMPT[:50])  # the pool has a part of the prompt, which is lost too
    r = Asked("decode", list(PROMPT), kv_transfer_params=prefilled(prefill, PROMPT))
    pair[0].process.send_signal(signal.SIGSTOP)  # so that the fetch does not end by itself
    assert decode.scheduler.get_num_new_matched_tokens(r, 0) == (None, False)
    assert decode.scheduler.get_num_new_matched_tokens(r, 0) == (None, False)
    pair[1].process.kill()
    pair[1].process.wait()
    assert decode.admit(r) == 0
    decode.step(r)
    counts = decode.scheduler._s().counts
    assert decode.holds(r, 100) and (counts.unfetched, counts.recomputed, counts.lost) == (1, 48, 1)
    decode.finish(r)
    pair[0].process.send_signal(signal.SIGCONT)
    for one in (prefill, decode):
        one.close()
    pair[0].process.kill()


def test_a_fetch_ends_with_its_request(instance: Instance, decode: Instance) -> None:
    told = prefilled(instance, PROMPT)
    r = Asked("decode", list(PROMPT), kv_transfer_params=told)
    under_way = decode.scheduler._s().fetches
    found = decode.scheduler.get_num_new_matched_tokens(r, 0)
    assert found in ((None, False), (96, True))  # on a busy machine the fetch has ended at once
    assert under_way._has(decode.scheduler._s()._kept["decode"].session) == (found[0] is None)
    decode.finish(r, "FINISHED_ABORTED")
    assert not under_way._under_way
    assert run(decode, "again", PROMPT)[1] in (0, 96)  # the fetch had ended, or not
    assert told
    prefill, end = instance.scheduler._s().pool.connection, time.monotonic() + 10
    with suppress(tern.Gone):  # Gone: the fetch had ended
        prefill.ticket_drop(told["tern_ticket"])
    while prefill.stats()["sessions"] and time.monotonic() < end:
        time.sleep(0.01)  # its host learns after a while that the fetch was cancelled
