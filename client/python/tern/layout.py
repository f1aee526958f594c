"""The layout of a pool and the identity of its prefixes: values, without a connection.

The public classes are arguments of Engine.open_pool and of sessions. The other functions convert
arguments for libtern and raise Invalid with the argument's name.
"""

from __future__ import annotations

import ctypes as ct
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _lib
from ._lib import STEP_NONE
from .errors import Invalid

FAMILIES = {"history": 0, "window": 1, "recurrent": 2}
SUPERSEDE = {"lazy": 0, "eager": 1, "off": 2}
SHARDS = {"none": 0, "heads": 1, "replicated": 2, "layers": 3, "tokens": 4}
ROLES = {"scheduler": 0, "worker": 1, "both": 2}
MODES = {"host": 0, "drop": 1}

U32_MAX, U64_MAX = 2**32 - 1, 2**64 - 1

Ids = npt.NDArray[np.uint32]
TokenList = Sequence[int] | npt.NDArray[np.integer[Any]]


def choice(table: dict[str, int], what: str, word: str) -> int:
    """Returns the number of a word, or raises Invalid with the words that are allowed."""
    if word not in table:
        raise Invalid(f"{what}={word!r}: use one of {', '.join(map(repr, table))}")
    return table[word]


def encoded(what: str, text: object) -> bytes:
    """Returns a string as libtern takes it, or raises Invalid with the name of the argument."""
    if not isinstance(text, str):
        raise Invalid(f"{what}={text!r}: pass a string")
    if "\0" in text:
        raise Invalid(f"{what}={text!r}: a string for libtern must have no NUL")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{what}={text!r}: the string has half of a surrogate pair") from None


def encoded_or_none(what: str, text: object) -> bytes | None:
    return None if text is None else encoded(what, text)


def number(what: str, value: object, most: int = U32_MAX) -> int:
    """Returns a number as libtern takes it, or raises Invalid with the name of the argument.

    ctypes itself would name an argument by its position only, and would convert -1 to a large
    number.
    """
    try:
        n = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise Invalid(f"{what}={value!r}: pass a whole number") from None
    if not 0 <= n <= most:
        raise Invalid(f"{what}={n}: pass a number from 0 to {most}")
    return n


def step_number(value: object) -> int:
    try:
        return number("step", value, STEP_NONE)
    except Invalid:
        raise Invalid(
            f"step={value!r}: pass the number of the last step that may touch the pages, "
            "or tern.STEP_NONE if nothing is in flight"
        ) from None


def milliseconds(deadline_ms: object) -> int:
    return number("deadline_ms", deadline_ms)


def dtype_of(group: str, dtype: str) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise Invalid(
            f"group {group!r}: NumPy has no dtype={dtype!r}: use uint16 for bfloat16, uint8 for 8-bit floats"
        ) from None
    if found.hasobject or found.itemsize == 0:
        raise Invalid(f"group {group!r}: dtype={dtype!r} has no fixed size in bytes")
    return found


@dataclass(frozen=True)
class Channels:
    """A section of a field: `count` equal parts of `width` channels each (struct tern_channels)."""

    name: str
    count: int
    width: int


@dataclass(frozen=True)
class Axis:
    """An axis of a field: "layer", "kv", "token", "head", "channel", "dim" or "state".

    length: elements in the whole pool, over all ranks
    stride_bytes: stride in the page of one rank
    """

    name: str
    length: int
    stride_bytes: int


@dataclass(frozen=True)
class Field:
    """One array of a group. The pages of all ranks together contain it (struct tern_field).

    axes: outermost first
    offset: of its first element in a page, in bytes
    replicated: every rank has the whole array
    sections: with a "channel" axis; else empty
    """

    name: str
    axes: tuple[Axis, ...]
    element_bytes: int
    offset: int = 0
    replicated: bool = False
    sections: tuple[Channels, ...] = ()


@dataclass(frozen=True)
class Group:
    """One kind of page.

    shape, dtype: those of a page in one region, as NumPy names them: (layers, 2, page_tokens,
        heads, head_dim) and "float16", for instance
    family: "history", "window" or "recurrent"
    axes: names of the axes of `shape`; engines share a pool only if these names are equal, too
    units: checksummed pieces of a page; 0 stands for 1
    cap_pages: the most pages of the group; 0: limited by the pool only
    """

    name: str
    page_tokens: int
    shape: tuple[int, ...]
    dtype: str = "float32"
    family: str = "history"
    window: int = 0  # tokens of a "window" group; else 0
    reserve: int = 0  # "window" group: tokens of the largest rewind, at least 1; else 0
    axes: tuple[str, ...] = ()
    units: int = 0
    cap_pages: int = 0
    fields: tuple[Field, ...] = ()  # if set, pools of other shardings can exchange its pages

    @property
    def page_bytes(self) -> int:
        return math.prod(self.shape) * dtype_of(self.name, self.dtype).itemsize

    def pages_for(self, tokens: int) -> int:
        """Returns the number of pages that cover that many allocated tokens of a session."""
        if self.family == "recurrent":
            return 1 if tokens else 0
        return -(-tokens // self.page_tokens)


@dataclass(frozen=True)
class Namespace:
    """The namespace of a prefix: equal tokens in different namespaces are different prefixes."""

    model: str = ""
    revision: str = ""
    kv_dtype: str = ""
    lora: str = ""
    salt: str = ""

    def _c(self) -> _lib.Namespace:
        return _lib.Namespace(
            *(encoded(part, getattr(self, part)) for part in ("model", "revision", "kv_dtype", "lora", "salt"))
        )


@dataclass(frozen=True)
class ExtraKey:
    """Content at the token at `position` that is part of the prefix's identity: an image's hash."""

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
    """Returns the tokens as a uint32 array. Raises Invalid if one of them is no 32-bit id."""
    given = np.asarray(tokens)
    if given.ndim != 1:
        raise Invalid(f"tokens must be a list of numbers, not of shape {given.shape}")
    if given.dtype == np.uint32:
        return np.ascontiguousarray(given)
    if given.dtype.kind not in "iu" and len(given):
        raise Invalid(f"tokens must be integers below 2**32, not {given.dtype}")
    wrong = (given < 0) | (given > 0xFFFFFFFF) if len(given) else given
    if wrong.any():
        at = int(wrong.argmax())
        raise Invalid(f"token {given[at]} at position {at} is not a 32-bit id")
    return given.astype(np.uint32)


def c_tokens(tokens: TokenList, keys: Iterable[ExtraKey] = (), base: int = 0) -> CTokens:
    ids = c_ids(tokens)
    listed = [
        _lib.ExtraKey(
            number("position of an extra key", k.position),
            0,
            number("hi of an extra key", k.hi, U64_MAX),
            number("lo of an extra key", k.lo, U64_MAX),
        )
        for k in keys
    ]
    array = (_lib.ExtraKey * len(listed))(*listed)
    c = _lib.Tokens(
        ids.ctypes.data_as(ct.POINTER(ct.c_uint32)), len(ids), base, array if listed else None, len(listed)
    )
    return CTokens(ids, c, array)


def c_axes(g: Group, itemsize: int) -> ct.Array[_lib.Axis] | None:
    if not g.axes:
        return None
    if len(g.axes) != len(g.shape):
        raise Invalid(f"group {g.name!r} has {len(g.shape)} axes and {len(g.axes)} names of axes: name each axis")
    axes = (_lib.Axis * len(g.axes))()
    for i, name in enumerate(g.axes):
        length, stride = g.shape[i], math.prod(g.shape[i + 1 :]) * itemsize
        axes[i] = _lib.Axis(encoded(f"an axis of group {g.name!r}", name), length, stride)
    return axes


def c_field(c: _lib.Field, g: Group, f: Field) -> object:
    """Fills in `c`, and returns the memory that it points to."""
    what = f"group {g.name!r}: field {f.name!r}"
    c.name = encoded(what, f.name)
    c.over = 1 if f.replicated else 0
    c.element_bytes = number(f"{what}: element_bytes", f.element_bytes)
    c.offset = number(f"{what}: offset", f.offset, U64_MAX)
    axes = (_lib.Axis * len(f.axes))()
    for axis, a in zip(axes, f.axes):
        axis.name = encoded(f"an axis of {what}", a.name)
        axis.length = number(f"{what}: length of {a.name}", a.length, U64_MAX)
        axis.stride_bytes = number(f"{what}: stride of {a.name}", a.stride_bytes, U64_MAX)
    sections = (_lib.Channels * len(f.sections))()
    for section, s in zip(sections, f.sections):
        section.name = encoded(f"a section of {what}", s.name)
        section.count = number(f"{what}: count of {s.name}", s.count)
        section.width = number(f"{what}: width of {s.name}", s.width)
    c.axes, c.naxes = axes, len(f.axes)
    c.sections, c.nsections = sections, len(f.sections)
    return axes, sections


def c_group(c: _lib.Group, g: Group) -> object:
    """Fills in `c`, and returns the memory that it points to."""
    c.name = encoded("the name of a group", g.name)
    for i, length in enumerate(g.shape):
        number(f"group {g.name!r}: shape[{i}]", length, U64_MAX)
    c.family = choice(FAMILIES, f"group {g.name!r}: family", g.family)
    c.page_bytes = number(f"group {g.name!r}: page_bytes", g.page_bytes, U64_MAX)
    for field_name in ("page_tokens", "units", "cap_pages", "window", "reserve"):
        setattr(c, field_name, number(f"group {g.name!r}: {field_name}", getattr(g, field_name)))
    axes = c_axes(g, dtype_of(g.name, g.dtype).itemsize)
    c.axes, c.naxes = axes, len(g.axes)
    fields = (_lib.Field * len(g.fields))()
    kept = [c_field(field, g, f) for field, f in zip(fields, g.fields)]
    c.fields, c.nfields = fields, len(g.fields)
    return axes, fields, kept


def check_names(groups: Sequence[Group]) -> None:
    """Raises Invalid if two groups have one name: a table is found by its group's name."""
    seen: set[str] = set()
    for g in groups:
        if g.name in seen:
            raise Invalid(f"two groups have the name {g.name!r}: give each its own")
        seen.add(g.name)


def c_layout(
    groups: Sequence[Group],
    nbytes: int,
    host_bytes: int,
    supersede: str,
    shard: str,
    stages: int = 1,
    align_tokens: int = 0,
) -> tuple[_lib.Layout, object]:
    """Returns the layout, and the memory that it points to."""
    check_names(groups)
    listed = (_lib.Group * len(groups))()
    kept = [listed, *(c_group(c, g) for c, g in zip(listed, groups))]
    layout = _lib.Layout(
        listed,
        len(groups),
        choice(SHARDS, "shard", shard),
        number("bytes", nbytes, U64_MAX),
        choice(SUPERSEDE, "supersede", supersede),
        number("host_bytes", host_bytes, U64_MAX),
        number("stages", stages),
        number("align_tokens", align_tokens),
    )
    return layout, kept
