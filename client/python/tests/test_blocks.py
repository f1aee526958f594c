"""Blocks by key: buffers in and out, whole and in pieces, and calls that are refused."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest
from daemons import Daemon

import tern

BYTES = 20000
POOL = 2 << 20


def opened(d: Daemon, model: str = "m", hosts: str | None = None) -> tern.Blocks:
    return tern.Blocks(
        d.socket,
        namespace=tern.Namespace(model=model),
        group="kv",
        value_bytes=BYTES,
        pool_bytes=POOL,
        threads=2,
        hosts=hosts,
    )


def key(i: int) -> bytes:
    return hashlib.sha256(str(i).encode()).digest()


def value(i: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(i).integers(0, 256, BYTES, dtype=np.uint8)


def test_what_was_put_comes_back_from_another_set(daemons: tuple[Daemon, Daemon]) -> None:
    keys = [key(i) for i in range(20)]
    with opened(daemons[0]) as a, opened(daemons[0]) as b, opened(daemons[0], "other") as other:
        assert all(a.put(keys, [value(i) for i in range(20)]))
        assert b.front([*keys, key(99)]) == 20
        assert b.find([keys[3], key(99)]) == ["pool", "nowhere"]
        assert other.front(keys) == 0
        got = [np.zeros(BYTES, np.uint8) for _ in range(20)]
        assert all(b.get(keys, got))
        assert all(np.array_equal(got[i], value(i)) for i in range(20))
        # Only keys in the middle of the list, in pieces, and bytes that are stored already.
        pieces = [bytearray(1), bytearray(BYTES - 1)]
        assert b.get([keys[7]], [pieces]) == [True]
        assert bytes(pieces[0] + pieces[1]) == value(7).tobytes()
        assert a.put([keys[7]], [value(8).tobytes()]) == [True]
        assert b.get([keys[7]], [got[0]]) == [True] and np.array_equal(got[0], value(7))
        assert a.counts().there == 1 and b.counts().hits == 22
        with a.pin([keys[0], key(99)]) as pin:
            assert pin.pinned == [True, False]
            with pytest.raises(tern.Busy):
                b.remove([keys[0]], deadline_ms=50)
        assert b.touch(keys) == 20 and b.remove(keys) == 20 and a.front(keys) == 0
        assert b.get([keys[7]], [got[0]]) == [False]


def test_what_another_host_has_is_found_and_got(daemons: tuple[Daemon, Daemon]) -> None:
    keys, there = [key(i) for i in range(40, 60)], slice(5, 20)
    got = [np.zeros(BYTES, np.uint8) for _ in keys]
    with opened(daemons[0]) as a, opened(daemons[1]) as b, opened(daemons[1], hosts="any") as any_host:
        assert all(a.put(keys[there], [value(i) for i in range(45, 60)]))
        assert b.front(keys[there]) == 0  # front asks no peer
        assert any_host.find(keys) == ["nowhere"] * 5 + ["elsewhere"] * 15
        assert any_host.host_of(4) is None and any_host.host_of(5) == "host-a"
        assert any_host.get(keys, got) == [False] * 5 + [True] * 15
        assert all(np.array_equal(got[i], value(40 + i)) for i in range(5, 20))
        assert b.find(keys[there]) == ["pool"] * 15
    with opened(daemons[1], hosts="host-a") as named, opened(daemons[0]) as a:
        assert named.remove(keys[there]) == 15 and named.find(keys) == ["nowhere"] * 5 + ["elsewhere"] * 15
        assert named.get(keys, got) == [False] * 5 + [True] * 15 and named.host_of(0) is None
        assert a.remove(keys[there]) == 15
    for name, match in (("host-c", "host-a"), ("host-b", "host-a"), ("/disk", "`hosts`"), ("", "`hosts`"), (1, "hosts")):
        with pytest.raises(tern.Invalid, match=match):
            opened(daemons[1], hosts=name)  # type: ignore[arg-type]


def test_what_is_wrong_is_refused(daemons: tuple[Daemon, Daemon]) -> None:
    with opened(daemons[0]) as a:
        for keys, values in (([b""], [value(0)]), ([b"x" * 33], [value(0)]), ([b"k"], [value(0)[1:]])):
            with pytest.raises(tern.Invalid):
                a.put(keys, values)
        with pytest.raises(tern.Invalid, match="1 keys and 2 values"):
            a.put([b"k"], [value(0), value(1)])
        with pytest.raises(tern.Invalid, match="read-only"):
            a.get([b"k"], [value(0).tobytes()])
        with pytest.raises(tern.Invalid, match="contiguous"):
            a.put([b"k"], [np.zeros((BYTES, 2), np.uint8)[:, 0]])
        with pytest.raises(tern.Invalid, match="is bytes"):
            a.find(["k"])  # type: ignore[list-item]
        assert a.find([]) == [] and a.get([], []) == []
    with pytest.raises(tern.Invalid, match="closed"):
        a.front([b"k"])
    with pytest.raises(tern.Invalid, match="group"):
        tern.Blocks(daemons[0].socket, namespace=tern.Namespace(), group="a/b", value_bytes=8, pool_bytes=POOL)
