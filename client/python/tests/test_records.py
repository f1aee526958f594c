"""Turn records against a real daemon."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tern
from daemons import Daemon

PAGE = 16
KV = tern.Group("kv", page_tokens=PAGE, shape=(2, PAGE, 8), axes=("layer", "token", "dim"))
POOL = 256 << 10
TURN = 50  # tokens of a turn
HIDDEN = 700  # elements of float16 that a blob has for each token


@pytest.fixture
def pool(daemons: tuple[Daemon, Daemon]) -> Iterator[tern.Pool]:
    with tern.connect(daemons[0].socket) as c:
        pool = c.join("records").open_pool([KV], bytes=POOL)
        yield pool
        pool.close()


def logprobs(first: int, last: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return -np.arange(first, last, dtype=np.float32) / 64


def hidden(tokens: int) -> np.ndarray[tuple[int, int], np.dtype[np.float16]]:
    return (np.arange(tokens * HIDDEN, dtype=np.float32).reshape(tokens, HIDDEN) % 1013).astype(np.float16)


def leave(s: tern.Session, turns: int) -> None:
    """Appends a record in each turn: TURN more tokens, and a blob for all tokens so far."""
    for n in range(1, turns + 1):
        with s.turn() as turn:
            told = turn.append_record(
                range(n * TURN), logprobs((n - 1) * TURN, n * TURN), {"hidden": hidden(n * TURN)}
            )
            assert (told.length, told.records) == (n * TURN, n)


def test_small_data_stays_and_blobs_of_the_last(pool: tern.Pool) -> None:
    with pool.session(tern.Namespace(salt="records")) as s:
        leave(s, 4)
        with s.turn() as turn:
            records = turn.records()
            small = turn.records(2, blobs=False)
            merged = turn.merged()
    assert [len(small), small[1].blobs, small[0].first] == [2, {}, 2 * TURN]
    assert [r.dropped for r in records] == [("hidden",), ("hidden",), (), ()]
    for i, r in enumerate(records):  # copies: the session is closed
        assert (r.first, r.length) == (i * TURN, (i + 1) * TURN)
        assert (r.tokens == np.arange(r.first, r.length)).all() and r.logprobs is not None
        assert (r.logprobs == logprobs(r.first, r.length)).all() and r.logprobs.dtype == np.float32
        assert list(r.blobs) == (["hidden"] if i >= 2 else [])
    for r in (records[2], records[3]):
        assert (r.blobs["hidden"].view(np.float16).reshape(-1, HIDDEN) == hidden(r.length)).all()
    assert (merged.tokens == np.arange(4 * TURN)).all() and (merged.logprobs == logprobs(0, 4 * TURN)).all()
    assert (merged.blobs["hidden"] == records[3].blobs["hidden"]).all()
    merged.blobs["hidden"][:] = 0  # the caller's own copy
    assert records[3].blobs["hidden"].any()


def test_a_session_says_how_many_keep_their_blobs(pool: tern.Pool) -> None:
    for options, whole in (({"blobs_kept": 3}, 3), ({"blobs_kept": 1}, 1), ({}, 2), ({"merging": True}, 4)):
        with pool.session(tern.Namespace(salt="kept"), **options) as s:
            leave(s, 4)
            with s.turn() as turn:
                assert sum(1 for r in turn.records() if r.blobs) == whole
    with pytest.raises(tern.Invalid, match="blobs_kept"):
        pool.session(tern.Namespace(), blobs_kept=2, merging=True)
    with pytest.raises(tern.Invalid, match="blobs_kept is at most 16"):
        pool.session(tern.Namespace(), blobs_kept=17)


def test_rollback_goes_to_what_the_list_begins_with(pool: tern.Pool) -> None:
    with pool.session(tern.Namespace(salt="back")) as s:
        leave(s, 3)
        with s.turn() as turn:
            with pytest.raises(tern.Conflict, match="roll back first"):
                turn.append_record(range(2 * TURN))
            told = turn.rollback([*range(2 * TURN), 7, 7], step=tern.STEP_NONE)
            assert (told.length, told.records) == (2 * TURN, 2)
            assert list(turn.records()[1].blobs) == ["hidden"]
            with pytest.raises(tern.Invalid, match="goes back beyond the records"):
                turn.rollback(range(TURN), step=tern.STEP_NONE)
            assert turn.rollback(range(2 * TURN), step=tern.STEP_NONE).records == 2
            assert turn.append_record([*range(2 * TURN), 7], [-0.5]).records == 3
            assert turn.rollback(range(2 * TURN), step=tern.STEP_NONE).records == 2


def test_rollback_behind_what_is_committed_gives_the_table_up(pool: tern.Pool) -> None:
    with pool.session(tern.Namespace(salt="table")) as s:
        with s.turn() as turn:
            turn.match(range(TURN))
            turn.extend(written=TURN, allocated=TURN)
            turn.commit(32, step=tern.STEP_NONE)
            turn.finish(TURN, step=tern.STEP_NONE)
            turn.append_record(range(10))
            turn.append_record(range(20))
            assert turn.rollback(range(TURN), step=tern.STEP_NONE).records == 2  # no record is dropped
            assert (s.committed, s.written, s.allocated, s.tokens) == (0, 0, 0, 20)
            assert len(s.table("kv")) == 0
            assert turn.rollback(range(10), step=tern.STEP_NONE).records == 1
            assert turn.match(range(20)).matched == 16


def test_a_session_goes_on_from_what_a_rollback_left(pool: tern.Pool) -> None:
    """The table may be dropped although no record is dropped and no turn has finished."""
    with pool.session(tern.Namespace(salt="left")) as s, s.turn() as turn:
        turn.append_record(range(20))
        turn.match(range(TURN))
        turn.extend(written=TURN, allocated=TURN)
        turn.commit(48, step=tern.STEP_NONE)
        assert turn.rollback(range(30), step=tern.STEP_NONE).records == 1
        assert (s.committed, s.written, s.allocated, s.tokens) == (0, 0, 0, 0) and len(s.table("kv")) == 0
        turn.extend(append=range(5), allocated=5)
        assert s.tokens == 5


def test_what_is_no_record_is_named(pool: tern.Pool) -> None:
    with pool.session(tern.Namespace(salt="wrong")) as s:
        with s.turn() as turn:
            assert turn.records() == [] and turn.merged().blobs == {} and len(turn.merged().tokens) == 0
            wrong = logprobs(0, TURN)
            wrong[17] = np.nan
            with pytest.raises(tern.Malformed, match="log-probability 17 of the new tokens is not finite"):
                turn.append_record(range(TURN), wrong)
            with pytest.raises(tern.Malformed, match="log-probability 1 of the new"):
                turn.append_record([1, 2], [0.0, -1e300])
            with pytest.raises(tern.Malformed, match="token 1 of the list is 2.31 or more"):
                turn.append_record([1, 2**31])
            with pytest.raises(tern.Malformed, match="or none at all"):
                turn.append_record(range(TURN), [0.0])
            with pytest.raises(tern.Invalid, match="not of shape"):
                turn.append_record(range(2), np.zeros((2, 1)))
            with pytest.raises(tern.Invalid, match="a list of numbers"):
                turn.append_record(range(2), ["a", "b"])  # type: ignore[list-item]
            with pytest.raises(tern.Invalid, match="blob 'a': pass bytes or an array"):
                turn.append_record(range(2), blobs={"a": 7})
            with pytest.raises(tern.Invalid, match="1 to 31 bytes"):
                turn.append_record(range(2), blobs={"a" * 32: b"x"})
            with pytest.raises(tern.Quota, match="record memory has too little room"):
                turn.append_record(range(2), blobs={"a": bytes(5 << 20)})
            assert turn.append_record(range(2), blobs={"a": b"abc", "b": hidden(2)[:, ::2]}).records == 1
            (only,) = turn.records()
            assert only.logprobs is None and bytes(only.blobs["a"]) == b"abc"
            assert (only.blobs["b"].view(np.float16) == hidden(2)[:, ::2].reshape(-1)).all()
            assert np.isnan(turn.merged().logprobs).all()
        with pytest.raises(tern.Gone):
            turn.records()


def test_many_records_are_all_read(pool: tern.Pool) -> None:
    with pool.session(tern.Namespace(salt="many")) as s, s.turn() as turn:
        for n in range(1, 71):
            turn.append_record(range(n), [-float(n)])
        read = turn.records()
        assert [r.first for r in read] == list(range(70))
        assert [float(r.logprobs[0]) for r in read if r.logprobs is not None] == [-n for n in range(1, 71)]
