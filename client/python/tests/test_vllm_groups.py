"""Models with several groups of KV, driven as in test_vllm.py: two groups with a window of 39
tokens before the one that reads, and one group with full attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import tern
from daemons import Daemon
from tern.vllm.pages import layout_of
from vllm_rig import (
    BLOCK,
    HYBRID,
    Asked,
    FullAttentionSpec,
    Instance,
    SlidingWindowSpec,
    cache_config,
    forget,
    long_blocks,
    pages,
    run,
)

PROMPT = [(i * 7919) % 1000 for i in range(200)]
FULL = 1  # number of the group with full attention


def made(daemon: Daemon, name: str, specs: Sequence[object] = HYBRID) -> Iterator[Instance]:
    one = Instance(daemon.socket, name, specs)
    forget(one)
    yield one
    told = one.scheduler._s().pool.connection.stats()
    assert told["sessions"] == 0 and not any(pages(one, "session", group) for group in range(len(specs)))
    counts = one.scheduler._s().counts
    assert (counts.refused, counts.failed) == (0, 0)
    one.close()


@pytest.fixture
def instance(daemons: tuple[Daemon, Daemon]) -> Iterator[Instance]:
    yield from made(daemons[0], "groups")


@pytest.fixture
def decode(daemons: tuple[Daemon, Daemon]) -> Iterator[Instance]:
    yield from made(daemons[1], "groups")


def test_a_prompt_comes_back_with_the_end_of_its_windows(instance: Instance) -> None:
    assert run(instance, "first", PROMPT)[1] == 0
    assert instance.worker._w().copied.copies == 3 * 12
    assert run(instance, "second", PROMPT)[1] == 192
    copied = instance.worker._w().copied
    assert (copied.loaded, copied.saved) == (192, 192)
    assert copied.copies == 3 * 12 + 12 + 2 * 3  # in the windows: the tokens from 153 on


@pytest.mark.parametrize("common", range(16, 192, 16))
def test_what_two_prompts_have_in_common_comes_back(instance: Instance, common: int) -> None:
    run(instance, "first", PROMPT)
    assert run(instance, "second", [*PROMPT[:common], *[5] * 40])[1] == common


def test_the_last_token_is_computed(instance: Instance) -> None:
    """The windows of the shorter prefix are different ones."""
    run(instance, "first", PROMPT[:192])
    assert run(instance, "second", PROMPT[:192])[1] == 176


def test_a_prompt_in_chunks_and_its_answer_are_saved(instance: Instance) -> None:
    r = Asked("first", list(PROMPT))
    instance.admit(r)
    for _ in range(5):
        instance.step(r, tokens=40)
    for token in range(30):
        r.all_token_ids.append(token)
        instance.step(r)
    assert r.blocks[0][:11] == [0] * 11 and all(r.blocks[FULL])  # vLLM has dropped blocks
    instance.finish(r)
    for common in range(16, 224, 16):
        assert run(instance, str(common), [*r.all_token_ids[:common], *[5] * 9])[1] == common


@pytest.mark.parametrize(("itself", "blocks"), [(96, 6 + 2 * 3), (160, 2 + 2 * 2)])
def test_what_vllm_has_itself_is_not_loaded(instance: Instance, itself: int, blocks: int) -> None:
    """With 160 tokens, vLLM also has the first block of the windows at 192."""
    run(instance, "first", PROMPT)
    r = Asked("second", list(PROMPT))
    has_itself(instance, r, itself)
    before = instance.worker._w().copied.copies
    assert instance.admit(r) == 192 - itself
    instance.loaded()
    assert instance.holds(r, 192)
    assert instance.worker._w().copied.copies - before == blocks
    instance.finish(r)


def brought(instance: Instance, common: int) -> int:
    """Returns how many tokens are loaded of a prompt that has `common` tokens in common with
    PROMPT. The blocks are compared, and not computed."""
    r = Asked("brought", [*PROMPT[:common], *[5] * 40])
    found = instance.admit(r)
    instance.loaded()
    assert instance.holds(r, found)
    instance.finish(r)
    return found


def has_itself(instance: Instance, r: Asked, tokens: int) -> None:
    """Fills vLLM's own prefix cache with `tokens` tokens, without those that have left their
    windows."""
    instance.give(r, tokens, tokens)
    instance.compute(r, tokens)


def test_windows_that_vllm_has_no_more_are_not_saved(instance: Instance) -> None:
    r = Asked("first", list(PROMPT))
    has_itself(instance, r, 96)
    assert r.blocks[0].count(0) == 3  # of 96 tokens, 57 are no longer needed
    assert instance.admit(r) == 0
    instance.step(r)
    instance.finish(r)
    assert instance.worker._w().copied.copies == 12 + 2 * 9
    for common in range(16, 192, 16):
        assert brought(instance, common) == (common if common >= 96 else 0)


LONG = {
    "windows of short blocks": (long_blocks(FullAttentionSpec()), SlidingWindowSpec()),
    "windows of long blocks": (FullAttentionSpec(), long_blocks(SlidingWindowSpec())),
    "a window of less than a block": (long_blocks(FullAttentionSpec()), SlidingWindowSpec(BLOCK - 3)),
}


@pytest.fixture(params=LONG)
def long(daemons: tuple[Daemon, Daemon], request: pytest.FixtureRequest) -> Iterator[Instance]:
    yield from made(daemons[0], "long", LONG[request.param])


@pytest.mark.parametrize("step", [1, 23, 200])
@pytest.mark.parametrize("itself", [0, 96])
def test_groups_of_other_blocks(long: Instance, itself: int, step: int) -> None:
    """Multiples of 32 tokens, which all block sizes divide, are saved and come back."""
    r = Asked("first", list(PROMPT))
    has_itself(long, r, itself)
    long.admit(r)
    while r.num_computed_tokens < len(PROMPT):
        long.step(r, tokens=step)
    long.finish(r)
    for common in range(16, 192, 16):
        whole = common // 32 * 32
        assert brought(long, common) in ((whole,) if itself == 0 else (0, whole))
    if step > 1:
        assert brought(long, 192) == 192


def test_blocks_of_which_tern_keeps_nothing_may_be_dropped() -> None:
    layout = layout_of(cache_config(*LONG["a window of less than a block"]))  # 12 tokens, in blocks of 16
    assert layout.whole_from(saved=96, start=127, depth=128) == 0  # the block of 96 to 112, before the window at 128
    assert layout.whole_from(saved=64, start=127, depth=128) == 112 + 12  # and the window at 96


@pytest.fixture
def near(daemons: tuple[Daemon, Daemon]) -> Iterator[Instance]:
    """The windows are whole blocks: with the token before them, which Tern keeps, they reach into
    one more."""
    specs = (FullAttentionSpec(), SlidingWindowSpec(2 * BLOCK + 1))
    yield from made(daemons[0], "near", specs)


def test_a_window_that_begins_where_vllm_has_dropped_all_before_it_waits_for_the_next_block(near: Instance) -> None:
    r = Asked("first", list(PROMPT[:100]))
    has_itself(near, r, 96)
    near.admit(r)
    near.step(r)
    assert near.worker._w().copied.saved == 0
    r.all_token_ids += PROMPT[100:112]
    near.step(r)
    near.finish(r)
    assert near.worker._w().copied.saved == 112
    for common, found in ((80, 0), (96, 96), (112, 112)):
        assert brought(near, common) == found


def test_what_found_no_room_is_saved_later(instance: Instance) -> None:
    held = instance.scheduler._s().pool.session(tern.Namespace(model="other"))
    held.match([])
    held.extend(allocated=pages(instance, "total", FULL) // 3 * BLOCK)
    r = Asked("first", list(PROMPT))
    instance.admit(r)
    instance.step(r, tokens=100)
    assert instance.scheduler._s().counts.full == 1 and instance.worker._w().copied.saved == 0
    held.close(step=tern.STEP_NONE)
    instance.step(r)
    instance.finish(r)
    assert instance.worker._w().copied.saved == 192
    for common in range(16, 192, 16):
        assert brought(instance, common) == (common if common >= 96 else 0)


def test_a_preempted_request_begins_anew(instance: Instance) -> None:
    r = Asked("first", list(PROMPT))
    instance.admit(r)
    instance.step(r)
    instance.begins_again(r, 192)


def test_a_request_that_is_preempted_before_its_first_token_comes_is_computed(instance: Instance) -> None:
    """All of the prompt is saved, and the last token has to be computed: the windows of that length
    are different ones."""
    r = Asked("first", PROMPT[:192])
    instance.admit(r)
    instance.step(r)
    instance.drop(r)
    assert instance.admit(r) == 0
    instance.step(r)
    instance.finish(r)


def test_a_failed_load_is_computed(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    run(instance, "first", PROMPT)
    r = Asked("second", list(PROMPT))
    instance.admit(r)
    monkeypatch.setattr(instance.worker._w().copier.groups[2], "pages", 1)  # only one group
    instance.loaded()
    monkeypatch.undo()
    counts = instance.scheduler._s().counts
    assert (r.num_computed_tokens, counts.failed, counts.recomputed) == (0, 1, 192)
    counts.failed = 0
    assert instance.admit(r) == 0
    instance.step(r)
    assert instance.holds(r, 200)
    instance.finish(r)


@pytest.mark.parametrize("tokens", [192, 200])
def test_a_prompt_is_handed_over_up_to_its_last_token(instance: Instance, decode: Instance, tokens: int) -> None:
    params: dict[str, Any] = {"do_remote_decode": True}
    r = Asked("prefill", PROMPT[:tokens], kv_transfer_params=params)
    instance.admit(r)
    instance.step(r)
    told = instance.finish(r)
    found = (tokens - 1) // BLOCK * BLOCK
    assert told and told["tern_tokens"] == found
    assert run(decode, "decode", PROMPT[:tokens], kv_transfer_params=told)[1] == found
    assert decode.scheduler._s().counts.fetched == 1
    assert decode.worker._w().copied.copies == found // BLOCK + 2 * 3 + (tokens // BLOCK * BLOCK - found) // BLOCK * 3


def test_an_instance_that_was_killed_leaves_its_pages(daemons: tuple[Daemon, Daemon]) -> None:
    for name, found in (("first", 0), ("second", 192)):
        one = Instance(daemons[0].socket, name, HYBRID)
        if found == 0:
            forget(one)
        assert run(one, name, PROMPT)[1] == found
        one.close()
