"""Changes of Tern's chunks by vLLM's names of blocks: hashes, and the events of vLLM's KV event
stream as plain values.

tern.vllm.events feeds Blocks with a subscription and publishes the events. The module needs neither
vLLM nor anything outside the standard library.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..aio import Event, chains
from ..layout import Namespace

BLOCKS_MAX = 1_000_000  # blocks kept, each some 400 bytes and 4 a token; further ones are not reported
GPU, CPU = "GPU", "CPU"  # vLLM's media; consumers drop blocks on a medium that they do not know
LOCAL = "LOCAL"  # vLLM's locality: the daemon's memory is that of this bridge's host
FOUND_MAX = 1 << 16  # namespaces remembered, including those that are not reported
DEFAULT_SEED = "vllm-none-hash"  # vLLM's own if PYTHONHASHSEED is not set


class Unfit(ValueError):
    """Tern's chunks cannot be reported in blocks of that size. The message names what to change."""


def cbor(value: object) -> bytes:
    """Returns the canonical CBOR (RFC 8949, 4.2.1) of a value that vLLM hashes: None, a number from
    0 on, bytes, text, or a sequence of these."""
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
    raise TypeError(f"vLLM cannot hash a {type(value).__name__}")


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
    """A LoRA adapter, as vLLM names it. number: its id, which is part of no hash"""

    name: str
    path: str
    number: int


@dataclass(frozen=True)
class Space:
    """The identity of blocks beside their tokens: extra keys in vLLM's hashes, a namespace in
    Tern."""

    adapter: Adapter | None = None
    salt: str = ""

    def namespace(self, model: str, revision: str, kv_dtype: str) -> Namespace:
        lora = f"{self.adapter.name}={self.adapter.path}" if self.adapter else ""
        return Namespace(model, revision, kv_dtype, lora, self.salt)

    def keys(self, is_first: bool) -> tuple[tuple[str, ...], ...] | None:
        """vLLM's generate_block_hash_extra_keys. is_first: for the first block, which alone has the
        salt"""
        keys: list[tuple[str, ...]] = [("lora", self.adapter.name, self.adapter.path)] if self.adapter else []
        keys += [("cache_salt", self.salt)] if self.salt and is_first else []
        return tuple(keys) or None

    def told(self, is_first: bool) -> tuple[str, ...] | None:
        """vLLM's to_event_extra_keys of keys()."""
        return tuple(key[1] for key in self.keys(is_first) or ()) or None


NO_EXTRAS = Space()


@dataclass(frozen=True)
class Kind:
    """A group of vLLM's KV, as vLLM's events describe it."""

    group: int = 0
    kind: str = "full_attention"
    window: int | None = None


FULL = (Kind(),)


@dataclass(frozen=True)
class Place:
    """How the blocks of a pool are reported. medium: of its device tier; that of its host tier is
    CPU"""

    kinds: tuple[Kind, ...] = FULL
    medium: str = CPU

    def media(self, change: Event) -> frozenset[str]:
        """Returns the media that have the chunk after the change."""
        if change.kind == "removed":
            return frozenset()
        on = [self.medium] if change.on_device else []
        return frozenset(on + ([CPU] if change.on_host else []))


def place_of(rows: Sequence[dict[str, Any]], block_size: int) -> Place:
    """Returns a pool's place. rows: its device tier in the daemon's stats, one row for each
    group"""
    return Place(kinds_of(rows, block_size), GPU if any(row["device_memory"] for row in rows) else CPU)


def kinds_of(rows: Sequence[dict[str, Any]], block_size: int) -> tuple[Kind, ...]:
    """Returns the groups of a pool that are reported, from its rows in the daemon's stats.

    Group i of a connector's pool is group i of vLLM. A window of one token is a state, which is not
    reported.
    """
    found = []
    for i, row in enumerate(rows):
        if row["page_tokens"] != block_size or row["window"] == 1:
            continue
        if row["family"] == "history":
            found.append(Kind(i))
        elif row["family"] == "window":
            found.append(Kind(i, "sliding_window", row["window"] + 1))  # vLLM's count includes the reading token
    return tuple(found) or FULL


def block_hashes(
    parent: bytes, tokens: Sequence[int], block_size: int, space: Space = NO_EXTRAS, is_first: bool = False
) -> list[bytes]:
    """vLLM's hash_block_tokens for each block.

    parent: the hash of the block before, or of the seed; is_first: it is that of the seed
    """
    hashes = []
    for at in range(0, len(tokens), block_size):
        parent = sha256_cbor((parent, tuple(tokens[at : at + block_size]), space.keys(is_first and at == 0)))
        hashes.append(parent)
    return hashes


@dataclass(slots=True)
class _Chunk:
    """A chunk that is reported.

    before: the hash of the block before; None for a first chunk
    tokens: kept because a chunk that comes to another medium is reported anew, and that change has
        no tokens
    media, copies: by pool; if a pool has several copies, sessions hold all but the last since
        before a reset of the namespace
    """

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
    """The blocks of some namespaces that Tern has, from the tenant's changes.

    Equal prefixes in several pools, or on both tiers of one, count once on each medium: they are
    stored with the first of them there, and removed with the last.

    spaces: by namespace, what identifies its blocks beside their tokens; changes of other
        namespaces are not reported
    places: how a pool's blocks are reported
    whole: events have hashes of 32 bytes; else the last 64 bits of each as a number
    unnamed: number of chunks of these namespaces that are not reported, because their parent or
        their content is unknown
    """

    block_size: int
    spaces: dict[Namespace, Space]
    seed: str = DEFAULT_SEED
    places: Callable[[int], Place] = lambda pool: Place()
    whole: bool = False
    unnamed: int = 0
    _known: dict[int, _Chunk] = field(default_factory=dict)
    _found: dict[int, Space | None] = field(default_factory=dict)  # by the namespace's hash
    _blocks: int = 0
    _events: list[dict[str, Any]] = field(default_factory=list)
    # By medium: the chunk at the end of the last stored events, its kinds, and these events, one a
    # kind. A removal clears it.
    _last: dict[str, tuple[int, tuple[Kind, ...], list[dict[str, Any]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._root = sha256_cbor(self.seed)

    def clear(self) -> None:
        """Forgets all blocks, and reports that."""
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
        """Returns the events since the last call, with the keys and the order of vLLM's structs."""
        events, self._events = self._events, []
        self._last.clear()
        return events

    def _name(self, block: bytes) -> bytes | int:
        return block if self.whole else int.from_bytes(block[-8:], "big")

    def pending(self) -> int:
        return len(self._events)

    def _space(self, change: Event) -> Space | None:
        """Returns the space of a first chunk: the one in whose namespace its tokens have this
        chain. The search is made once for each namespace."""
        if change.ns not in self._found:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            n, tokens, keys = len(change.tokens), change.tokens, change.keys
            is_it = (space for ns, space in self.spaces.items() if chains(ns, tokens, n, keys) == [change.chain])
            self._found[change.ns] = next(is_it, None)
        return self._found[change.ns]

    def _stored(self, change: Event) -> _Chunk | None:
        """Returns a new chunk, or None if it is not reported."""
        first = change.parent_chain == 0
        parent = None if first else self._known.get(change.parent_chain)
        space = parent.space if parent else self._space(change) if first and change.tokens else None
        if space is None and change.ns in self._found and self._found[change.ns] is None:
            return None  # of a namespace that is not reported
        if not change.tokens or change.keys or space is None:
            self.unnamed += 1
            return None
        if len(change.tokens) % self.block_size:
            raise Unfit(
                f"chunks of {len(change.tokens)} tokens are not a whole number of blocks of {self.block_size}: pass vLLM's "
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
        """Reports the media to which the chunk came and those that it left."""
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
        """Reports a chunk as stored. If it follows the last events it is added to them, as vLLM
        reports all blocks of a step at once."""
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
        for block in reversed(chunk.hashes):  # one event each, as in vLLM
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
