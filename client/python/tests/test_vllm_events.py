"""KV events in vLLM's form: names of blocks, and the bridge over a real daemon."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tern
from daemons import READY_S, again, configured, run
from tern.aio import Event
from tern.layout import ExtraKey
from tern.vllm import event_blocks
from tern.vllm.event_blocks import (
    NO_EXTRAS,
    Adapter,
    Blocks,
    Kind,
    Place,
    Space,
    Unfit,
    block_hashes,
    cbor,
    kinds_of,
    place_of,
    sha256_cbor,
)

BLOCK, CHUNK = 4, 8
SEED = "0"
KV = tern.Group("kv", page_tokens=CHUNK, shape=(CHUNK, 8))
NS = tern.Namespace(model="m", kv_dtype="torch.bfloat16/None")
WAIT_MS = 30_000


# ---- blocks


def change(kind: str, chain: int, parent: int = 0, tokens: range | tuple[int, ...] = (), **more: Any) -> Event:
    said = {"pool": 1, "on_device": True, "on_host": False, "lost": 0, **more}
    return Event(number=chain, kind=kind, depth=8, chain=chain, parent_chain=parent, tokens=tuple(tokens), **said)


def number(block: bytes) -> int:
    return int.from_bytes(block[-8:], "big")


def told_blocks(block_size: int = BLOCK, **more: Any) -> Blocks:
    """Returns Blocks for changes as change() makes them, whose namespace is known and reported."""
    blocks = Blocks(block_size, {NS: NO_EXTRAS}, SEED, **more)
    blocks._found[0] = NO_EXTRAS
    return blocks


NAMES = block_hashes(sha256_cbor(SEED), range(16), BLOCK)
NUMBERS = [number(name) for name in NAMES]


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "f6"),
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (1000, "1903e8"),
        (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"),
        (b"\1\2\3\4", "4401020304"),
        ("IETF", "6449455446"),
        ((1, (2, 3), None), "8301820203f6"),
        (tuple(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ],
)
def test_cbor_is_as_the_rfc_has_it(value: object, text: str) -> None:
    assert cbor(value).hex() == text


def test_cbor_takes_what_vllm_hashes_alone() -> None:
    wrong: tuple[object, ...] = (True, 1.5, {})
    for value in wrong:
        with pytest.raises(TypeError):
            cbor(value)
    with pytest.raises(ValueError, match="64 bits"):
        cbor(1 << 64)


def test_hash_goes_on_from_the_block_before() -> None:
    first = hashlib.sha256(b"\x83\x58\x20" + hashlib.sha256(b"\x610").digest() + b"\x84\0\1\2\3\xf6").digest()
    assert NAMES[0] == first
    assert NAMES[1] == hashlib.sha256(b"\x83\x58\x20" + first + b"\x84\4\5\6\7\xf6").digest()


def test_stored_chunks_that_follow_each_other_are_one_event() -> None:
    blocks = told_blocks()
    blocks.take(change("stored", 1, 0, range(8)))
    blocks.take(change("stored", 2, 1, range(8, 16)))
    (event,) = blocks.events()
    assert event == {
        "type": "BlockStored",
        "block_hashes": NUMBERS,
        "parent_block_hash": None,
        "token_ids": list(range(16)),
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "CPU",
        "lora_name": None,
        "extra_keys": [None] * 4,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
        "kv_cache_spec_sliding_window": None,
        "locality": "LOCAL",
    }
    assert blocks.events() == []
    blocks.take(change("stored", 3, 2, range(8)))  # not added to an event that was returned
    (event,) = blocks.events()
    assert (event["parent_block_hash"], len(event["block_hashes"])) == (NUMBERS[-1], 2)
    blocks.take(change("stored", 4, 1, range(8)))
    blocks.take(change("stored", 5, 1, range(1, 9)))  # a sibling of chunk 2
    assert [e["parent_block_hash"] for e in blocks.events()] == [NUMBERS[1]] * 2


def test_whole_hashes() -> None:
    blocks = told_blocks(whole=True, places=lambda pool: Place((Kind(3),)))
    blocks.take(change("stored", 1, 0, range(8)))
    blocks.take(change("removed", 1))
    stored, *removed = blocks.events()
    assert (stored["block_hashes"], stored["group_idx"]) == (NAMES[:2], 3)
    assert [e["block_hashes"] for e in removed] == [[NAMES[1]], [NAMES[0]]]


def test_prefix_of_two_pools_is_removed_with_the_last() -> None:
    blocks = told_blocks()
    blocks.take(change("stored", 1, 0, range(8)))
    blocks.take(change("stored", 1, 0, range(8), pool=2))
    blocks.take(change("tier", 1, 0))
    assert len(blocks.events()) == 1
    blocks.take(change("removed", 1))
    assert blocks.events() == []
    blocks.take(change("removed", 1, pool=2))
    assert [e["type"] for e in blocks.events()] == ["BlockRemoved"] * 2
    blocks.take(change("removed", 1, pool=2))
    assert blocks.events() == []


def media(events: list[dict[str, Any]]) -> list[tuple[str, str, list[int]]]:
    return [(e["type"].removeprefix("Block"), e["medium"], e["block_hashes"]) for e in events]


def test_prefix_that_a_reset_and_a_session_leave_twice_is_removed_with_the_last() -> None:
    blocks = told_blocks()
    blocks.take(change("stored", 1, tokens=range(8)))
    blocks.take(change("stored", 1, tokens=range(8)))  # anew, while a session still has the one from before the reset
    assert [e["type"] for e in blocks.events()] == ["BlockStored"]
    blocks.take(change("removed", 1, on_device=False))
    assert blocks.events() == []
    blocks.take(change("removed", 1, on_device=False))
    assert [e["type"] for e in blocks.events()] == ["BlockRemoved", "BlockRemoved"]
    blocks.take(change("stored", 1, tokens=range(8)))
    blocks.take(change("removed", 1, on_device=False))
    assert [e["type"] for e in blocks.events()] == ["BlockStored", "BlockRemoved", "BlockRemoved"]


def test_each_tier_is_a_medium() -> None:
    blocks = told_blocks(places=lambda pool: Place(medium="GPU" if pool == 1 else "CPU"))
    blocks.take(change("stored", 1, 0, range(8)))
    blocks.take(change("stored", 2, 1, range(8, 16)))
    blocks.take(change("tier", 1, 0, on_host=True))  # the host gets copies
    blocks.take(change("tier", 2, 1, on_host=True))
    on_gpu, on_host = blocks.events()
    assert on_host == on_gpu | {"medium": "CPU"}
    assert (on_gpu["medium"], on_gpu["block_hashes"], on_host["token_ids"]) == ("GPU", NUMBERS, [*range(16)])
    blocks.take(change("tier", 2, 1, on_device=False, on_host=True))  # which outlive the pages of the device
    assert media(blocks.events()) == [("Removed", "GPU", [n]) for n in (NUMBERS[3], NUMBERS[2])]
    blocks.take(change("stored", 3, 2, range(8), on_device=False, on_host=True))  # behind a chunk that is only on the host
    blocks.take(change("tier", 2, 1, on_host=True))  # loaded to the device again, and its copy stays
    host, gpu = blocks.events()
    assert (host["medium"], host["parent_block_hash"]) == ("CPU", NUMBERS[3])
    assert (gpu["medium"], gpu["block_hashes"], gpu["parent_block_hash"]) == ("GPU", NUMBERS[2:], NUMBERS[1])
    blocks.take(change("stored", 1, 0, range(8), pool=2))  # a pool in host memory, beside the copy on the host
    blocks.take(change("removed", 1, 0, on_device=False))
    assert media(blocks.events()) == [("Removed", "GPU", [n]) for n in (NUMBERS[1], NUMBERS[0])]
    blocks.take(change("removed", 1, 0, on_device=False, pool=2))
    assert media(blocks.events()) == [("Removed", "CPU", [n]) for n in (NUMBERS[1], NUMBERS[0])]


def test_a_pool_in_host_memory_is_on_one_medium() -> None:
    blocks = told_blocks()
    blocks.take(change("stored", 1, 0, range(8)))
    blocks.take(change("tier", 1, 0, on_host=True))
    blocks.take(change("tier", 1, 0, on_device=False, on_host=True))
    assert media(blocks.events()) == [("Stored", "CPU", NUMBERS[:2])]
    blocks.take(change("removed", 1, 0))
    assert media(blocks.events()) == [("Removed", "CPU", [n]) for n in (NUMBERS[1], NUMBERS[0])]


def test_media_are_those_of_vllm() -> None:
    row = {"family": "history", "page_tokens": BLOCK, "window": 0}
    assert place_of([row | {"device_memory": True}], BLOCK) == Place((Kind(),), "GPU")
    assert place_of([row | {"device_memory": False}], BLOCK) == Place((Kind(),), "CPU")


def test_what_has_no_name_is_not_told_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = told_blocks()
    blocks.take(change("stored", 2, 1, range(8)))  # behind an unknown chunk
    blocks.take(change("stored", 1, 0))  # removed before it could be reported
    blocks.take(change("stored", 1, 0, range(8), keys=(ExtraKey(0, 1, 2),)))
    assert (blocks.unnamed, blocks.events()) == (3, [])
    monkeypatch.setattr(event_blocks, "BLOCKS_MAX", 3)
    blocks.take(change("stored", 1, 0, range(8)))
    blocks.take(change("stored", 2, 1, range(8)))
    assert (blocks.unnamed, len(blocks.events())) == (4, 1)
    blocks.take(change("removed", 1))  # now there is room
    blocks.take(change("stored", 3, 0, range(8)))
    assert (blocks.unnamed, len(blocks.events())) == (4, 3)


def test_clear_forgets() -> None:
    blocks = told_blocks()
    blocks.take(change("stored", 1, 0, range(8)))
    blocks.clear()
    blocks.take(change("removed", 1))
    blocks.take(change("stored", 1, 0, range(8)))
    assert [e["type"] for e in blocks.events()] == ["BlockStored", "AllBlocksCleared", "BlockStored"]


ADAPTED, SALTED = Space(Adapter("a", "/a", 2)), Space(Adapter("a", "/a", 2), "s")


def stored(ns: tern.Namespace, of: int, n: int, first: int = 0) -> list[Event]:
    """Returns the chunks of n tokens, of a namespace with the hash `of`."""
    names = [0, *tern.chains(ns, range(first, first + n), CHUNK)]
    ranges = [range(first + at, first + at + CHUNK) for at in range(0, n, CHUNK)]
    return [change("stored", b, a, these, ns=of) for a, b, these in zip(names, names[1:], ranges)]


def test_adapters_and_salts_are_extra_keys() -> None:
    spaces = {space.namespace("m", "", NS.kv_dtype): space for space in (NO_EXTRAS, ADAPTED, SALTED)}
    assert list(spaces)[0] == NS and list(spaces)[2] == tern.Namespace("m", "", NS.kv_dtype, "a=/a", "s")
    blocks, nobody = Blocks(BLOCK, spaces, SEED), tern.Namespace("m", "", NS.kv_dtype, "", "another")
    for i, ns in enumerate([*spaces, nobody]):
        for one in stored(ns, i, 16):
            blocks.take(one)
    plain, adapted, salted = blocks.events()
    assert (plain["lora_id"], plain["lora_name"], plain["extra_keys"]) == (None, None, [None] * 4)
    assert (adapted["lora_id"], adapted["lora_name"], adapted["extra_keys"]) == (2, "a", [("a",)] * 4)
    assert (salted["lora_id"], salted["extra_keys"]) == (2, [("a", "s"), ("a",), ("a",), ("a",)])
    first = sha256_cbor((sha256_cbor(SEED), (0, 1, 2, 3), (("lora", "a", "/a"), ("cache_salt", "s"))))
    second = sha256_cbor((first, (4, 5, 6, 7), (("lora", "a", "/a"),)))
    assert salted["block_hashes"][:2] == [number(first), number(second)]
    assert blocks.unnamed == 0  # chunks of another salt belong to no reported namespace

    beside = stored(list(spaces)[1], 1, 16, first=100)
    blocks.take(beside[1])  # behind an unknown chunk
    assert (blocks.unnamed, blocks.events()) == (1, [])
    for one in beside:
        blocks.take(one)
    (event,) = blocks.events()
    assert (event["lora_name"], event["parent_block_hash"], len(event["block_hashes"])) == ("a", None, 4)


def test_a_pool_with_windows_has_events_of_each_group() -> None:
    full = {"family": "history", "page_tokens": BLOCK, "window": 0}
    rows = [full | {"family": "window", "window": 7}, full, full | {"page_tokens": 2 * BLOCK}]
    rows.append(full | {"family": "window", "window": 1})  # a group of states
    kinds = kinds_of(rows, BLOCK)
    assert kinds == (Kind(0, "sliding_window", 8), Kind(1)) and kinds_of([], BLOCK) == (Kind(),)
    blocks = told_blocks(places=lambda pool: Place(kinds if pool == 1 else (Kind(),)))
    blocks.take(change("stored", 1, 0, range(8)))
    blocks.take(change("stored", 2, 1, range(8, 16)))
    blocks.take(change("stored", 3, 2, range(8), pool=2))
    windows, history, other = blocks.events()
    for event, group, window in ((windows, 0, 8), (history, 1, None)):
        assert (event["block_hashes"], event["token_ids"], event["parent_block_hash"]) == (NUMBERS, [*range(16)], None)
        assert (event["group_idx"], event["kv_cache_spec_sliding_window"]) == (group, window)
    assert (windows["kv_cache_spec_kind"], history["kv_cache_spec_kind"]) == ("sliding_window", "full_attention")
    assert (other["group_idx"], other["parent_block_hash"]) == (0, NUMBERS[-1])
    blocks.take(change("removed", 2))
    told_gone = [(e["block_hashes"], e["group_idx"]) for e in blocks.events()]
    assert told_gone == [([n], group) for n in NUMBERS[:1:-1] for group in (0, 1)]


def test_chunk_that_is_no_number_of_blocks_is_refused() -> None:
    with pytest.raises(Unfit, match="--block-size"):
        told_blocks(block_size=3).take(change("stored", 1, 0, range(8)))


# ---- the bridge


class Said:
    """A source of changes, and the events that are published for them."""

    def __init__(self, *changes: Event) -> None:
        self.changes, self.events = changes, list[dict[str, Any]]()

    async def subscribe(self, ns: object, *, start: int, tokens: bool) -> AsyncGenerator[Event, None]:
        assert start == 1 and tokens
        for one in self.changes:
            yield one
        await asyncio.sleep(0)  # lets the bridge publish what is due

    def publish(self, events: list[dict[str, Any]]) -> None:
        self.events += events


def test_lost_changes_end_what_is_followed() -> None:
    needs_sockets()
    from tern.vllm.events import follow

    first, second = change("stored", 1, 0, range(8), lost=7), change("stored", 2, 1, range(8))
    for lost, told in ((0, 4), (1, 2)):  # changes lost before the first one do not count
        said: Any = Said(first, change("stored", 3, 0, range(8), lost=lost), second)
        asyncio.run(follow(said, NS, told_blocks(), said))
        hashes = [name for event in said.events for name in event.get("block_hashes", ())]
        assert said.events[-1]["type"] == "AllBlocksCleared"
        assert len(hashes) == told + 2 * (lost == 0)


def bridge(socket: str) -> subprocess.Popen[str]:
    words = ["--socket", socket, "--model", NS.model, "--block-size", str(BLOCK), "--seed", SEED, "--topic", "kv"]
    ends = ["--endpoint", "tcp://127.0.0.1:*", "--replay", "tcp://127.0.0.1:*"]
    command = [sys.executable, "-m", "tern.vllm.events", *words, *ends]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def needs_sockets() -> None:
    for module in ("zmq", "msgspec"):
        pytest.importorskip(module, reason=f"the bridge needs {module}: deploy/setup.sh installs deploy/requirements.txt")


class Router:
    """A router: receives events, and requests replays."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        import msgspec
        import zmq

        assert process.stdout and process.stderr
        line = process.stdout.readline()
        assert "ready" in line, process.stderr.read()
        self.ends = dict(word.split("=", 1) for word in line.split() if "=" in word)
        self._context = zmq.Context()
        self.sub, self.req = self._context.socket(zmq.SUB), self._context.socket(zmq.DEALER)
        self.sub.connect(self.ends["endpoint"])
        self.sub.subscribe(b"kv")
        self.req.connect(self.ends["replay"])
        self.req.rcvtimeo = self.sub.rcvtimeo = WAIT_MS
        self.decode = msgspec.msgpack.decode

    def close(self) -> None:
        self._context.destroy(linger=0)

    def replayed(self, first: int = 0) -> list[tuple[int, bytes]]:
        self.req.send_multipart([b"", first.to_bytes(8, "big")])
        found: list[tuple[int, bytes]] = []
        while True:
            _, topic, number, batch = self.req.recv_multipart()
            if number == b"\xff" * 8:
                assert (topic, batch) == (b"", b"")
                return found
            assert topic == b"kv"
            found.append((int.from_bytes(number, "big"), batch))

    def until(self, n: int) -> list[dict[str, Any]]:
        """Returns all events from the first one on, once there are n."""
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            events = []
            for at, (number, batch) in enumerate(self.replayed()):
                assert number == at
                when, more, rank = self.decode(batch)
                assert rank == 0 and abs(when - time.time()) < 600
                events += more
            if len(events) >= n:
                return events
            time.sleep(0.02)
        raise AssertionError(f"{len(events)} events")


@contextmanager
def storing(socket: str) -> Iterator[tuple[tern.Connection, Any]]:
    """Yields the connection of a pool, and a function that stores the chunks of a token list in
    it."""
    with tern.connect(socket) as connection:
        engine = connection.join("e")
        pool = engine.open_pool([KV], bytes=64 << 10)

        def store(ns: tern.Namespace, tokens: range) -> None:
            session = pool.session(ns)
            session.match(tokens)
            session.extend(written=len(tokens), allocated=len(tokens))
            with engine.step() as step:
                session.commit(len(tokens), step=step)
                session.close(step=step)

        yield connection, store


def test_bridge_follows_a_daemon_and_the_next(tmp_path: Path) -> None:
    needs_sockets()
    daemon = run(configured(tmp_path / "host-a", "events_tokens: true, memory: 1M", "page_bytes_min: 256\n"), "host-a")
    with storing(daemon.socket) as (_, store):  # before the bridge is started
        store(NS, range(8))
        process = bridge(daemon.socket)
        router = Router(process)
        empty, first = router.until(2)
        assert empty == {"type": "AllBlocksCleared"}
        assert (first["block_hashes"], first["token_ids"]) == (NUMBERS[:2], list(range(8)))
        store(tern.Namespace(model="n"), range(8))  # in another namespace
        store(NS, range(16))
        second = router.until(3)[2]
        assert (second["parent_block_hash"], second["block_hashes"]) == (NUMBERS[1], NUMBERS[2:])
        topic, number, batch = router.sub.recv_multipart()  # the published form equals the replayed one
        assert topic == b"kv" and (int.from_bytes(number, "big"), batch) in router.replayed()
        last = router.replayed()[-1]
        assert router.replayed(last[0]) == [last]
        assert router.replayed(last[0] + 1) == []
    daemon = again(daemon)
    events = router.until(4)
    cleared = next(i for i, e in enumerate(events[3:], 3) if e["type"] == "AllBlocksCleared")
    assert {e["type"] for e in events[3:cleared]} <= {"BlockRemoved"}
    with storing(daemon.socket) as (connection, store):
        store(NS, range(16))
        events = router.until(cleared + 2)
        assert (events[cleared + 1]["parent_block_hash"], events[cleared + 1]["block_hashes"][0]) == (None, NUMBERS[0])
        connection.namespace_reset(NS)
        events = router.until(cleared + 6)
        names = [e["block_hashes"][0] for e in events if e["type"] == "BlockRemoved"][-4:]
        assert names == NUMBERS[::-1]
    process.send_signal(signal.SIGINT)
    assert process.wait(READY_S) == 0
    router.close()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(READY_S) == 0


def test_bridge_says_what_to_set(tmp_path: Path) -> None:
    needs_sockets()
    daemon = run(configured(tmp_path / "host-a", "memory: 1M", "page_bytes_min: 256\n"), "host-a")
    process = bridge(daemon.socket)
    _, said = process.communicate(timeout=READY_S)
    assert process.returncode == 1 and "events_tokens: true" in said
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(READY_S) == 0
