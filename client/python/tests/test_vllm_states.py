"""Models with linear attention, driven as in test_vllm.py: two groups of states, and one of full
attention. vLLM has a state only where a step ended at the end of a block."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from daemons import Daemon
from tern.vllm.pages import layout_of
from tern.vllm.settings import Refused
from test_vllm_groups import brought, has_itself, made
from vllm_rig import (
    BLOCK,
    LINEAR,
    Asked,
    FullAttentionSpec,
    Instance,
    MambaSpec,
    SlidingWindowSpec,
    cache_config,
    long_blocks,
    run,
)

PROMPT = [(i * 7919) % 1000 for i in range(200)]
WHOLE = 192


@pytest.fixture
def instance(daemons: tuple[Daemon, Daemon]) -> Iterator[Instance]:
    yield from made(daemons[0], "states", LINEAR)


@pytest.fixture
def decode(daemons: tuple[Daemon, Daemon]) -> Iterator[Instance]:
    yield from made(daemons[1], "states", LINEAR)


def computed(instance: Instance, name: str, *steps: int, **more: Any) -> Asked:
    """Runs a request, with one engine step for each number of tokens in `steps`."""
    r = Asked(name, PROMPT[: sum(steps)], **more)
    instance.admit(r)
    for tokens in steps:
        instance.step(r, tokens=tokens)
    return r


def test_a_prompt_comes_back_with_one_state(instance: Instance) -> None:
    instance.finish(computed(instance, "first", WHOLE, 8))
    copied = instance.worker._w().copied
    assert copied.copies == 12 + 2  # one state of each group, though the prompt has 12 blocks
    r = Asked("second", list(PROMPT))
    assert instance.admit(r) == WHOLE
    instance.loaded()
    assert instance.holds(r, WHOLE)
    instance.step(r)
    instance.finish(r)
    assert (copied.loaded, copied.saved, copied.copies) == (WHOLE, WHOLE, 2 * (12 + 2))


@pytest.mark.parametrize("common", range(16, WHOLE, 16))
def test_a_prefix_comes_back_where_there_is_a_state(instance: Instance, common: int) -> None:
    instance.finish(computed(instance, "first", 64, 64, 64, 8))
    assert brought(instance, common) == common // 64 * 64


def test_a_step_that_ends_inside_of_a_block_saves_no_state(instance: Instance) -> None:
    """The step saves no KV either: KV behind the last state is never loaded."""
    r = computed(instance, "first", 64, 56, 8, 72)
    assert instance.worker._w().copied.saved == 128
    instance.finish(r)
    for common, found in ((64, 64), (112, 64), (128, 128), (176, 128)):
        assert brought(instance, common) == found


def test_an_answer_leaves_a_state_at_the_end_of_each_block(instance: Instance) -> None:
    r = computed(instance, "first", WHOLE, 8)
    for token in range(20):
        r.all_token_ids.append(token)
        instance.step(r)
    instance.finish(r)
    again = Asked("again", [*r.all_token_ids, 1])
    assert instance.admit(again) == 208
    instance.loaded()
    assert instance.holds(again, 208)
    instance.finish(again)


def test_what_vllm_has_itself_is_saved_with_the_next_state(instance: Instance) -> None:
    r = Asked("first", list(PROMPT))
    has_itself(instance, r, 96)
    assert instance.admit(r) == 0
    instance.step(r, tokens=96)
    instance.step(r)
    instance.finish(r)
    assert instance.worker._w().copied.copies == 12 + 2
    assert (brought(instance, 96), brought(instance, 160)) == (0, 0)
    assert run(instance, "second", PROMPT)[1] == WHOLE


def test_a_preempted_request_begins_at_its_last_state(instance: Instance) -> None:
    r = computed(instance, "first", 128, 40)
    instance.begins_again(r, 128)


def test_a_failed_load_is_computed(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    instance.finish(computed(instance, "first", WHOLE, 8))
    r = Asked("second", list(PROMPT))
    instance.admit(r)
    monkeypatch.setattr(instance.worker._w().copier.groups[0], "pages", 1)  # a group of states
    instance.loaded()
    monkeypatch.undo()
    counts = instance.scheduler._s().counts
    assert (r.num_computed_tokens, counts.failed, counts.recomputed) == (0, 1, WHOLE)
    counts.failed = 0
    assert instance.admit(r) == 0
    instance.step(r)
    instance.finish(r)


def test_a_prompt_is_handed_over_to_its_last_state(instance: Instance, decode: Instance) -> None:
    r = computed(instance, "prefill", WHOLE, 8, kv_transfer_params={"do_remote_decode": True})
    told = instance.finish(r)
    assert told and told["tern_tokens"] == WHOLE
    assert run(decode, "decode", PROMPT, kv_transfer_params=told)[1] == WHOLE
    assert decode.scheduler._s().counts.fetched == 1


# ---- configurations that are refused by name


def state(**other: object) -> MambaSpec:
    one = MambaSpec()
    for name, value in other.items():
        setattr(one, name, value)
    return one


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        ((FullAttentionSpec(), state(mamba_cache_mode="none")), "start with --enable-prefix-caching"),
        ((FullAttentionSpec(), state(mamba_type=SimpleNamespace(name="MAMBA2"))), "states of MAMBA2"),
        ((FullAttentionSpec(), state(num_prefill_checkpoint_blocks=1)), "blocks beside them"),
        ((long_blocks(FullAttentionSpec()), MambaSpec()), "blocks of different sizes"),
        ((MambaSpec(), SlidingWindowSpec()), "no layer with full attention"),
    ],
)
def test_models_are_refused(specs: tuple[object, ...], says: str) -> None:
    with pytest.raises(Refused, match=says):
        layout_of(cache_config(*specs))


def test_states_of_another_meaning_are_another_pool() -> None:
    names = [
        layout_of(cache_config(FullAttentionSpec(), spec)).groups[1].name
        for spec in (MambaSpec(), state(dtypes=("float16", "float32")), state(shapes=((20, 3), (10,))))
    ]
    assert len(set(names)) == 3


def test_states_lie_at_the_front_of_blocks(instance: Instance) -> None:
    shape = instance.worker._layout.shapes[0]
    assert (shape.data_bytes, shape.layer_bytes, shape.block_tokens) == (160, 512, BLOCK)
    assert [copier.layers[0].stride for copier in instance.worker._w().copier.groups] == [512, 512, 512]
    instance.finish(computed(instance, "first", WHOLE, 8))
    assert instance.worker._w().copied.bytes == 2 * (12 * 512 + 2 * 160)  # 2: layers
