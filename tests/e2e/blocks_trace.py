"""Plays a trace through a set of blocks, like an engine that looks up pages of L tokens by hash:
find, get the found ones from the front on, put the rest. Every returned byte is compared.

Usage: blocks_trace.py SOCKET TRACE L LIMIT PAGES. PAGES: of the pool. Prints a JSON object:
matched_tokens, prompt_pages, prompt_tokens, and the counts of wrong, unstored and lost pages."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import tern

KEY, COPIES, LIST_MAX = 32, 6, 4096
PAGE = KEY * COPIES + 64  # with the trailer


def prompts(path: str, limit: int) -> Iterator[tuple[int, list[int], int]]:
    """Yields for each request its tokens, the ids of its blocks, and the tokens of a block."""
    with open(path) as trace:
        for _, text in zip(range(limit), trace):
            line = json.loads(text)
            yield line["input_length"], line["hash_ids"], line.get("block_size", 512)


def keys_of(request: int, tokens: int, ids: list[int], block: int, page: int) -> list[bytes]:
    """A key is the hash of the page's tokens and of the previous key. Tokens are identified by
    their block and their place in it; those behind the last block are the request's own."""
    keys, key = [], b""
    for start in range(0, tokens // page * page, page):
        h = hashlib.blake2b(key, digest_size=KEY)
        for at in range(start // block, (start + page - 1) // block + 1):
            first, end = max(start, at * block), min(start + page, (at + 1) * block)
            own = at >= len(ids)
            h.update(b"%d %d %d %d;" % (own, request if own else ids[at], first - at * block, end - first))
        keys.append(key := h.digest())
    return keys


def values_of(keys: list[bytes]) -> npt.NDArray[np.uint8]:
    return np.tile(np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY), COPIES)


def spans(values: npt.NDArray[np.uint8]) -> tern.Spans:
    """The spans are valid as long as the caller has the array."""
    first = values.ctypes.data + np.arange(len(values), dtype=np.uint64) * np.uint64(values.shape[1])
    return tern.Spans(first.reshape(-1, 1), (values.shape[1],))


def main() -> None:
    socket, path, page, limit, pages = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    told = dict.fromkeys(("matched_tokens", "prompt_pages", "prompt_tokens", "wrong_pages", "lost", "not_stored"), 0)
    with tern.Blocks(
        socket, namespace=tern.Namespace(model="trace"), group="kv", value_bytes=KEY * COPIES, pool_bytes=PAGE * pages
    ) as blocks:
        for request, (tokens, ids, block) in enumerate(prompts(path, limit)):
            keys = keys_of(request, tokens, ids, block, page)
            front, found = 0, LIST_MAX
            while found == LIST_MAX and front < len(keys):
                found = blocks.front(keys[front : front + LIST_MAX], deadline_ms=60000)
                front += found
            for at in range(0, front, LIST_MAX):
                some = keys[at : min(at + LIST_MAX, front)]
                into = np.zeros((len(some), KEY * COPIES), np.uint8)
                got = blocks.get(some, spans(into), deadline_ms=60000)
                told["lost"] += got.count(False)
                told["wrong_pages"] += int((into != values_of(some)).any(1)[np.array(got)].sum())
            for at in range(front, len(keys), LIST_MAX):
                some = keys[at : at + LIST_MAX]
                values = values_of(some)
                told["not_stored"] += blocks.put(some, spans(values), deadline_ms=60000).count(False)
            told["matched_tokens"] += front * page
            told["prompt_pages"] += len(keys)
            told["prompt_tokens"] += tokens
    print(json.dumps(told))


main()
