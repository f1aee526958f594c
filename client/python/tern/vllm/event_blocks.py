"""What Tern tells of its chunks, as vLLM names its blocks: hashes, and the events of vLLM's KV event stream as plain
values. It needs neither vLLM nor anything outside the standard library."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..aio import Event

BLOCKS_MAX = 1_000_000  # that are kept, of some 400 bytes; what is stored beyond is not told
MEDIUM, KIND = "TERN", "full_attention"
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


def block_hashes(parent: bytes, tokens: Sequence[int], block_size: int) -> list[bytes]:
    """vLLM's hash_block_tokens for each block, without extra keys. parent: the hash before, or that of the seed."""
    hashes = []
    for at in range(0, len(tokens), block_size):
        parent = sha256_cbor((parent, tuple(tokens[at : at + block_size]), None))
        hashes.append(parent)
    return hashes


@dataclass(slots=True)
class _Chunk:
    hashes: list[bytes]
    pools: tuple[int, ...]


@dataclass
class Blocks:
    """The blocks of one namespace that Tern has, fed with its changes. Equal prefixes in several pools are one: stored
    with the first of them, and removed with the last.

    whole: events have hashes of 32 bytes, and else of each the last 64 bits as a number
    unnamed: chunks that are not told, since it is not known what they follow or what they are of
    """

    block_size: int
    seed: str = DEFAULT_SEED
    group: int = 0
    whole: bool = False
    unnamed: int = 0
    _known: dict[int, _Chunk] = field(default_factory=dict)
    _blocks: int = 0
    _events: list[dict[str, Any]] = field(default_factory=list)
    _tail: int = 0  # chain of the last chunk of the last event, if that is a BlockStored

    def __post_init__(self) -> None:
        self._root = sha256_cbor(self.seed)

    def clear(self) -> None:
        """Nothing is known any more."""
        self._known.clear()
        self._blocks = self._tail = 0
        self._events.append({"type": "AllBlocksCleared"})

    def take(self, change: Event) -> None:
        if change.kind == "stored":
            self._stored(change)
        elif change.kind == "removed":
            self._removed(change)

    def events(self) -> list[dict[str, Any]]:
        """Those since the last call, with the keys, and in the order, of vLLM's structs."""
        events, self._events, self._tail = self._events, [], 0
        return events

    def _name(self, block: bytes) -> bytes | int:
        return block if self.whole else int.from_bytes(block[-8:], "big")

    def pending(self) -> int:
        return len(self._events)

    def _stored(self, change: Event) -> None:
        known = self._known.get(change.chain)
        if known:
            if change.pool not in known.pools:
                known.pools += (change.pool,)
            return
        first = change.parent_chain == 0
        parent = None if first else self._known.get(change.parent_chain)
        if not change.tokens or change.keys or (parent is None and not first):
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
        hashes = block_hashes(before or self._root, change.tokens, self.block_size)
        self._known[change.chain] = _Chunk(hashes, (change.pool,))
        self._blocks += len(hashes)
        self._tell(change, before, hashes)

    def _tell(self, change: Event, before: bytes | None, hashes: list[bytes]) -> None:
        """What follows the last event is added to it, as vLLM tells all blocks of a step at once."""
        if self._tail and self._tail == change.parent_chain:
            last = self._events[-1]
            last["block_hashes"] += map(self._name, hashes)
            last["token_ids"] += change.tokens
            last["extra_keys"] += [None] * len(hashes)
        else:
            self._events.append(
                {
                    "type": "BlockStored",
                    "block_hashes": list(map(self._name, hashes)),
                    "parent_block_hash": self._name(before) if before else None,
                    "token_ids": list(change.tokens),
                    "block_size": self.block_size,
                    "lora_id": None,
                    "medium": MEDIUM,
                    "lora_name": None,
                    "extra_keys": [None] * len(hashes),
                    "group_idx": self.group,
                    "kv_cache_spec_kind": KIND,
                }
            )
        self._tail = change.chain

    def _removed(self, change: Event) -> None:
        known = self._known.get(change.chain)
        if not known:
            return
        known.pools = tuple(pool for pool in known.pools if pool != change.pool)
        if known.pools:
            return
        del self._known[change.chain]
        self._blocks -= len(known.hashes)
        self._tail = 0
        for block in reversed(known.hashes):  # one each, as vLLM tells them
            self._events.append(
                {
                    "type": "BlockRemoved",
                    "block_hashes": [self._name(block)],
                    "medium": MEDIUM,
                    "group_idx": self.group,
                }
            )
