"""What Tern tells of its chunks, as vLLM names its blocks: hashes, and the events of vLLM's KV event stream as plain
values. It needs neither vLLM nor anything outside the standard library."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..aio import Event, chains
from ..layout import Namespace

BLOCKS_MAX = 1_000_000  # that are kept, of some 400 bytes and 4 a token; what is stored beyond is not told
GPU, CPU = "GPU", "CPU"  # vLLM's media. Consumers drop a block on a medium that they do not know
LOCAL = "LOCAL"  # vLLM's locality: the daemon's memory is that of the host whose bridge this is
FOUND_MAX = 1 << 16  # namespaces that are kept in mind, also those that are not told
DEFAULT_SEED = "vllm-none-hash"  # vLLM's own where PYTHONHASHSEED is not set


class Unfit(ValueError):
    """What Tern holds cannot be told in blocks of that size. The message says what to change."""


def cbor(value: object) -> bytes:
    """The canonical CBOR (RFC 8949, 4.2.1) of what vLLM hashes: None, numbers from 0 on, bytes, text and sequences."""
    if value is None:
        return b"\xf6"
    if isinstance(value, int) and not isinstance(value, bool):
        return _head(0, value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(3, len(text)) + text
    if isinstance(value, (list, tuple)):
        return _head(4, len(value)) + b"".join(cbor(item) for item in value)
    raise TypeError(f"vLLM hashes no {type(value).__name__}")


def _head(major: int, n: int) -> bytes:
    if n < 24:
        return bytes([major << 5 | n])
    for more, size in enumerate((1, 2, 4, 8)):
        if n < 1 << 8 * size:
            return bytes([major << 5 | 24 + more]) + n.to_bytes(size, "big")
    raise ValueError(f"{n} has more than 64 bits")


def sha256_cbor(value: object) -> bytes:
    return hashlib.sha256(cbor(value)).digest()


@dataclass(frozen=True)
class Adapter:
    """A LoRA, as vLLM names it. number: its id, which no hash has"""

    name: str
    path: str
    number: int


@dataclass(frozen=True)
class Space:
    """What keeps blocks apart beside their tokens: in vLLM's hashes extra keys, and in Tern a namespace."""

    adapter: Adapter | None = None
    salt: str = ""

    def namespace(self, model: str, revision: str, kv_dtype: str) -> Namespace:
        lora = f"{self.adapter.name}={self.adapter.path}" if self.adapter else ""
        return Namespace(model, revision, kv_dtype, lora, self.salt)

    def keys(self, is_first: bool) -> tuple[tuple[str, ...], ...] | None:
        """vLLM's generate_block_hash_extra_keys. is_first: of the first block, which alone has the salt"""
        keys: list[tuple[str, ...]] = [("lora", self.adapter.name, self.adapter.path)] if self.adapter else []
        keys += [("cache_salt", self.salt)] if self.salt and is_first else []
        return tuple(keys) or None

    def told(self, is_first: bool) -> tuple[str, ...] | None:
        """vLLM's to_event_extra_keys of them."""
        return tuple(key[1] for key in self.keys(is_first) or ()) or None


NO_EXTRAS = Space()


@dataclass(frozen=True)
class Kind:
    """A group of vLLM's KV, as its events say of what a block is."""

    group: int = 0
    kind: str = "full_attention"
    window: int | None = None


FULL = (Kind(),)


@dataclass(frozen=True)
class Place:
    """How the blocks of a pool are told. medium: of its device tier; the medium of its host tier is CPU"""

    kinds: tuple[Kind, ...] = FULL
    medium: str = CPU

    def media(self, change: Event) -> frozenset[str]:
        """The media on which the change leaves its chunk."""
        if change.kind == "removed":
            return frozenset()
        on = [self.medium] if change.on_device else []
        return frozenset(on + ([CPU] if change.on_host else []))


def place_of(rows: Sequence[dict[str, Any]], block_size: int) -> Place:
    """rows: of the device tier of one pool in the daemon's stats, one a group"""
    return Place(kinds_of(rows, block_size), GPU if any(row["device_memory"] for row in rows) else CPU)


def kinds_of(rows: Sequence[dict[str, Any]], block_size: int) -> tuple[Kind, ...]:
    """The groups of a pool that are told, of its rows in the daemon's stats: group i of a connector's pool is group i of vLLM.
    A window of one token is a state, which is not told."""
    found = []
    for i, row in enumerate(rows):
        if row["page_tokens"] != block_size or row["window"] == 1:
            continue
        if row["family"] == "history":
            found.append(Kind(i))
        elif row["family"] == "window":
            found.append(Kind(i, "sliding_window", row["window"] + 1))  # vLLM counts the token that reads, too
    return tuple(found) or FULL


def block_hashes(
    parent: bytes, tokens: Sequence[int], block_size: int, space: Space = NO_EXTRAS, is_first: bool = False
) -> list[bytes]:
    """vLLM's hash_block_tokens for each block. parent: the hash before, or that of the seed; is_first: it is that"""
    hashes = []
    for at in range(0, len(tokens), block_size):
        parent = sha256_cbor((parent, tuple(tokens[at : at + block_size]), space.keys(is_first and at == 0)))
        hashes.append(parent)
    return hashes


@dataclass(slots=True)
class _Chunk:
    """before: the hash of the block before, None of a first chunk. tokens: kept, because a chunk that comes to a further
    medium is told anew, and the change says none then. media, copies: by pool; of several copies in a pool sessions hold all
    but the last from before a reset of the namespace"""

    before: bytes | None
    hashes: list[bytes]
    tokens: array[int]
    kinds: tuple[Kind, ...]
    space: Space
    media: dict[int, frozenset[str]] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)

    def told(self) -> frozenset[str]:
        return frozenset().union(*self.media.values())


@dataclass
class Blocks:
    """The blocks of some namespaces that Tern has, fed with the tenant's changes. Equal prefixes in several pools, or on both
    tiers of one, are one on each medium: stored with the first of them there, and removed with the last.

    spaces: by namespace, what its blocks have beside their tokens; changes of others are not told
    places: what is told of a pool's blocks
    whole: events have hashes of 32 bytes, and else of each the last 64 bits as a number
    unnamed: chunks of these that are not told, since it is not known what they follow or what they are of
    """

    block_size: int
    spaces: dict[Namespace, Space]
    seed: str = DEFAULT_SEED
    places: Callable[[int], Place] = lambda pool: Place()
    whole: bool = False
    unnamed: int = 0
    _known: dict[int, _Chunk] = field(default_factory=dict)
    _found: dict[int, Space | None] = field(default_factory=dict)  # by hash of a namespace
    _blocks: int = 0
    _events: list[dict[str, Any]] = field(default_factory=list)
    # By medium: the chunk with which the last stored events end, and these, one a kind. A removal closes all of them.
    _last: dict[str, tuple[int, tuple[Kind, ...], list[dict[str, Any]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._root = sha256_cbor(self.seed)

    def clear(self) -> None:
        """Nothing is known any more."""
        self._known.clear()
        self._last.clear()
        self._blocks = 0
        self._events.append({"type": "AllBlocksCleared"})

    def take(self, change: Event) -> None:
        chunk = self._known.get(change.chain)
        if not chunk and change.kind == "stored":
            chunk = self._stored(change)
        if not chunk:
            return
        left = chunk.copies.get(change.pool, 0) + {"stored": 1, "removed": -1}.get(change.kind, 0)
        chunk.copies[change.pool] = max(left, 0)
        if change.kind != "removed" or left <= 0:
            self._moved(change, chunk)

    def events(self) -> list[dict[str, Any]]:
        """Those since the last call, with the keys, and in the order, of vLLM's structs."""
        events, self._events = self._events, []
        self._last.clear()
        return events

    def _name(self, block: bytes) -> bytes | int:
        return block if self.whole else int.from_bytes(block[-8:], "big")

    def pending(self) -> int:
        return len(self._events)

    def _space(self, change: Event) -> Space | None:
        """That of a first chunk: the one in whose namespace its tokens have this chain. It is looked for once."""
        if change.ns not in self._found:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            n, tokens, keys = len(change.tokens), change.tokens, change.keys
            is_it = (space for ns, space in self.spaces.items() if chains(ns, tokens, n, keys) == [change.chain])
            self._found[change.ns] = next(is_it, None)
        return self._found[change.ns]

    def _stored(self, change: Event) -> _Chunk | None:
        """A chunk that was not known, or None where it is not told."""
        first = change.parent_chain == 0
        parent = None if first else self._known.get(change.parent_chain)
        space = parent.space if parent else self._space(change) if first and change.tokens else None
        if space is None and change.ns in self._found and self._found[change.ns] is None:
            return None  # of nobody who is told
        if not change.tokens or change.keys or space is None:
            self.unnamed += 1
            return None
        if len(change.tokens) % self.block_size:
            raise Unfit(
                f"chunks of {len(change.tokens)} tokens are no whole number of blocks of {self.block_size}: say vLLM's "
                "--block-size"
            )
        if self._blocks + len(change.tokens) // self.block_size > BLOCKS_MAX:
            self.unnamed += 1
            return None
        before = parent.hashes[-1] if parent else None
        hashes = block_hashes(before or self._root, change.tokens, self.block_size, space, first)
        chunk = _Chunk(before, hashes, array("I", change.tokens), self.places(change.pool).kinds, space)
        self._known[change.chain] = chunk
        self._blocks += len(hashes)
        return chunk

    def _moved(self, change: Event, chunk: _Chunk) -> None:
        """Tells the media to which the chunk came and those that it left."""
        before = chunk.told()
        if media := self.places(change.pool).media(change):
            chunk.media[change.pool] = media
        else:
            chunk.media.pop(change.pool, None)
        now = chunk.told()
        for medium in sorted(now - before):
            self._tell(change, chunk, medium)
        for medium in sorted(before - now):
            self._gone(chunk, medium)
        if not now:
            del self._known[change.chain]
            self._blocks -= len(chunk.hashes)

    def _tell(self, change: Event, chunk: _Chunk, medium: str) -> None:
        """What follows the last events is added to them, as vLLM tells all blocks of a step at once."""
        end, kinds, events = self._last.get(medium, (0, (), []))
        if (end, kinds) != (change.parent_chain, chunk.kinds):
            events = [self._begun(chunk, kind, medium) for kind in chunk.kinds]
            self._events += events
        for event in events:
            first = chunk.before is None
            event["block_hashes"] += map(self._name, chunk.hashes)
            event["token_ids"] += chunk.tokens
            event["extra_keys"] += [chunk.space.told(first and i == 0) for i in range(len(chunk.hashes))]
        self._last[medium] = (change.chain, chunk.kinds, events)

    def _begun(self, chunk: _Chunk, kind: Kind, medium: str) -> dict[str, Any]:
        adapter = chunk.space.adapter
        return {
            "type": "BlockStored",
            "block_hashes": [],
            "parent_block_hash": self._name(chunk.before) if chunk.before else None,
            "token_ids": [],
            "block_size": self.block_size,
            "lora_id": adapter.number if adapter else None,
            "medium": medium,
            "lora_name": adapter.name if adapter else None,
            "extra_keys": [],
            "group_idx": kind.group,
            "kv_cache_spec_kind": kind.kind,
            "kv_cache_spec_sliding_window": kind.window,
            "locality": LOCAL,
        }

    def _gone(self, chunk: _Chunk, medium: str) -> None:
        self._last.clear()
        for block in reversed(chunk.hashes):  # one each, as vLLM tells them
            for kind in chunk.kinds:
                self._events.append(
                    {
                        "type": "BlockRemoved",
                        "block_hashes": [self._name(block)],
                        "medium": medium,
                        "group_idx": kind.group,
                        "locality": LOCAL,
                    }
                )
