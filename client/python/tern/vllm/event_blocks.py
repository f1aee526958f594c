"""What Tern tells of its chunks, as vLLM names its blocks: hashes, and the events of vLLM's KV event stream as plain
values. It needs neither vLLM nor anything outside the standard library."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..aio import Event, chains
from ..layout import Namespace

BLOCKS_MAX = 1_000_000  # that are kept, of some 400 bytes; what is stored beyond is not told
MEDIUM = "TERN"
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
    hashes: list[bytes]
    pools: tuple[int, ...]
    kinds: tuple[Kind, ...]
    space: Space


@dataclass
class Blocks:
    """The blocks of some namespaces that Tern has, fed with the tenant's changes. Equal prefixes in several pools are one:
    stored with the first of them, and removed with the last.

    spaces: by namespace, what its blocks have beside their tokens; changes of others are not told
    kinds: the groups of a pool
    whole: events have hashes of 32 bytes, and else of each the last 64 bits as a number
    unnamed: chunks of these that are not told, since it is not known what they follow or what they are of
    """

    block_size: int
    spaces: dict[Namespace, Space]
    seed: str = DEFAULT_SEED
    kinds: Callable[[int], tuple[Kind, ...]] = lambda pool: FULL
    whole: bool = False
    unnamed: int = 0
    _known: dict[int, _Chunk] = field(default_factory=dict)
    _found: dict[int, Space | None] = field(default_factory=dict)  # by hash of a namespace
    _blocks: int = 0
    _events: list[dict[str, Any]] = field(default_factory=list)
    _last: tuple[int, tuple[Kind, ...]] = (0, ())  # the chunk that the last events, one a kind, end with, if they are stored

    def __post_init__(self) -> None:
        self._root = sha256_cbor(self.seed)

    def clear(self) -> None:
        """Nothing is known any more."""
        self._known.clear()
        self._blocks, self._last = 0, (0, ())
        self._events.append({"type": "AllBlocksCleared"})

    def take(self, change: Event) -> None:
        if change.kind == "stored":
            self._stored(change)
        elif change.kind == "removed":
            self._removed(change)

    def events(self) -> list[dict[str, Any]]:
        """Those since the last call, with the keys, and in the order, of vLLM's structs."""
        events, self._events, self._last = self._events, [], (0, ())
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

    def _stored(self, change: Event) -> None:
        known = self._known.get(change.chain)
        if known:
            if change.pool not in known.pools:
                known.pools += (change.pool,)
            return
        first = change.parent_chain == 0
        parent = None if first else self._known.get(change.parent_chain)
        space = parent.space if parent else self._space(change) if first and change.tokens else None
        if space is None and change.ns in self._found and self._found[change.ns] is None:
            return  # of nobody who is told
        if not change.tokens or change.keys or space is None:
            self.unnamed += 1
            return
        if len(change.tokens) % self.block_size:
            raise Unfit(
                f"chunks of {len(change.tokens)} tokens are no whole number of blocks of {self.block_size}: say vLLM's "
                "--block-size"
            )
        if self._blocks + len(change.tokens) // self.block_size > BLOCKS_MAX:
            self.unnamed += 1
            return
        before = parent.hashes[-1] if parent else None
        hashes = block_hashes(before or self._root, change.tokens, self.block_size, space, first)
        self._known[change.chain] = chunk = _Chunk(hashes, (change.pool,), self.kinds(change.pool), space)
        self._blocks += len(hashes)
        self._tell(change, before, chunk)

    def _tell(self, change: Event, before: bytes | None, chunk: _Chunk) -> None:
        """What follows the last events is added to them, as vLLM tells all blocks of a step at once."""
        if self._last != (change.parent_chain, chunk.kinds):
            self._events += [self._begun(chunk.space, before, kind) for kind in chunk.kinds]
        for event in self._events[-len(chunk.kinds) :]:
            first = before is None and not event["block_hashes"]
            event["block_hashes"] += map(self._name, chunk.hashes)
            event["token_ids"] += change.tokens
            event["extra_keys"] += [chunk.space.told(first and i == 0) for i in range(len(chunk.hashes))]
        self._last = (change.chain, chunk.kinds)

    def _begun(self, space: Space, before: bytes | None, kind: Kind) -> dict[str, Any]:
        return {
            "type": "BlockStored",
            "block_hashes": [],
            "parent_block_hash": self._name(before) if before else None,
            "token_ids": [],
            "block_size": self.block_size,
            "lora_id": space.adapter.number if space.adapter else None,
            "medium": MEDIUM,
            "lora_name": space.adapter.name if space.adapter else None,
            "extra_keys": [],
            "group_idx": kind.group,
            "kv_cache_spec_kind": kind.kind,
            "kv_cache_spec_sliding_window": kind.window,
        }

    def _removed(self, change: Event) -> None:
        known = self._known.get(change.chain)
        if not known:
            return
        known.pools = tuple(pool for pool in known.pools if pool != change.pool)
        if known.pools:
            return
        del self._known[change.chain]
        self._blocks -= len(known.hashes)
        self._last = (0, ())
        for block in reversed(known.hashes):  # one each, as vLLM tells them
            for kind in known.kinds:
                self._events.append(
                    {
                        "type": "BlockRemoved",
                        "block_hashes": [self._name(block)],
                        "medium": MEDIUM,
                        "group_idx": kind.group,
                    }
                )
