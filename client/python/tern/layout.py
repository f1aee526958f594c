"""What a pool is made of, and what its prefixes are kept apart by: values, without a connection."""

from __future__ import annotations

import ctypes as ct
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _lib
from .errors import Invalid

FAMILIES = {"history": 0, "window": 1, "recurrent": 2}
SUPERSEDE = {"lazy": 0, "eager": 1, "off": 2}
SHARDS = {"none": 0, "heads": 1, "replicated": 2, "layers": 3, "tokens": 4}
ROLES = {"scheduler": 0, "worker": 1, "both": 2}
MODES = {"host": 0, "drop": 1}

Ids = npt.NDArray[np.uint32]
TokenList = Sequence[int] | npt.NDArray[np.integer[Any]]


def choice(table: dict[str, int], what: str, word: str) -> int:
    """The number of a word, or Invalid with the words that there are."""
    if word not in table:
        raise Invalid(f"{what}={word!r}: say one of {', '.join(map(repr, table))}")
    return table[word]


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@dataclass(frozen=True)
class Group:
    """One kind of page. `shape` and `dtype` are those of a page in one region, as NumPy names them:
    (layers, 2, page_tokens, heads, head_dim) and "float16", for instance. The names of the axes
    are for other engines that would use the pool: equal groups have equal ones."""

    name: str
    page_tokens: int
    shape: tuple[int, ...]
    dtype: str = "float32"
    family: str = "history"
    window: int = 0  # of a "window" group, in tokens
    reserve: int = 0  # of a "window" group: tokens of the largest rewind, at least 1
    axes: tuple[str, ...] = ()
    units: int = 0
    cap_pages: int = 0

    @property
    def page_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def pages_for(self, tokens: int) -> int:
        """Pages of a session with so many allocated tokens."""
        if self.family == "recurrent":
            return 1 if tokens else 0
        return -(-tokens // self.page_tokens)


@dataclass(frozen=True)
class Namespace:
    """What keeps prefixes apart that have equal tokens."""

    model: str = ""
    revision: str = ""
    kv_dtype: str = ""
    lora: str = ""
    salt: str = ""

    def _c(self) -> _lib.Namespace:
        return _lib.Namespace(
            *(part.encode() for part in (self.model, self.revision, self.kv_dtype, self.lora, self.salt))
        )


@dataclass(frozen=True)
class ExtraKey:
    """Something beside the token at `position` that belongs to the prefix: an image's hash."""

    position: int
    hi: int
    lo: int


@dataclass
class CTokens:
    """A token list as libtern takes it, with the arrays that it points to."""

    ids: Ids
    c: _lib.Tokens
    keys: object = field(default=None)


def c_ids(tokens: TokenList) -> Ids:
    """The tokens as the daemon compares them. Invalid: one of them is no 32-bit id."""
    given = np.asarray(tokens)
    if given.ndim != 1:
        raise Invalid(f"tokens are a list of numbers, not of shape {given.shape}")
    if given.dtype == np.uint32:
        return np.ascontiguousarray(given)
    if given.dtype.kind not in "iu" and len(given):
        raise Invalid(f"tokens are integers below 2**32, not {given.dtype}")
    wrong = (given < 0) | (given > 0xFFFFFFFF) if len(given) else given
    if wrong.any():
        at = int(wrong.argmax())
        raise Invalid(f"token {given[at]} at position {at} is no 32-bit id")
    return given.astype(np.uint32)


def c_tokens(tokens: TokenList, keys: Iterable[ExtraKey] = (), base: int = 0) -> CTokens:
    ids = c_ids(tokens)
    listed = [_lib.ExtraKey(k.position, 0, k.hi, k.lo) for k in keys]
    array = (_lib.ExtraKey * len(listed))(*listed)
    c = _lib.Tokens(
        ids.ctypes.data_as(ct.POINTER(ct.c_uint32)), len(ids), base, array if listed else None, len(listed)
    )
    return CTokens(ids, c, array)


def c_layout(
    groups: Sequence[Group], nbytes: int, host_bytes: int, supersede: str, shard: str
) -> tuple[_lib.Layout, object]:
    """The layout, and what it points to."""
    listed = (_lib.Group * len(groups))()
    kept: list[object] = [listed]
    for c, g in zip(listed, groups):
        itemsize = np.dtype(g.dtype).itemsize
        if g.axes and len(g.axes) != len(g.shape):
            raise Invalid(f"group {g.name!r} has {len(g.shape)} axes and {len(g.axes)} names of axes")
        axes = (_lib.Axis * len(g.axes))()
        for i, name in enumerate(g.axes):
            axes[i] = _lib.Axis(name.encode(), g.shape[i], math.prod(g.shape[i + 1 :]) * itemsize)
        c.name, c.family = g.name.encode(), choice(FAMILIES, "family", g.family)
        c.page_tokens, c.page_bytes, c.units, c.cap_pages = g.page_tokens, g.page_bytes, g.units, g.cap_pages
        c.axes, c.naxes, c.window, c.reserve = axes if g.axes else None, len(g.axes), g.window, g.reserve
        kept.append(axes)
    layout = _lib.Layout(
        listed,
        len(groups),
        choice(SHARDS, "shard", shard),
        nbytes,
        choice(SUPERSEDE, "supersede", supersede),
        host_bytes,
    )
    return layout, kept
