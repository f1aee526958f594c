"""The groups of a model's KV: which bytes of vLLM's tensors form a page of Tern, and which blocks
matter.

A page is block b of every layer of a group, one layer after the other. Group i of vLLM is group i
of Tern's pool. connector makes the Layout from vLLM's configuration; scheduler and worker use it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from ..layout import Axis, Field, Group, Ids
from .jobs import Run
from .settings import Refused

KINDS = ("FullAttentionSpec", "SlidingWindowSpec", "MambaSpec")  # vLLM's groups that are supported
STATES = ("GDN_ATTN",)  # kinds of MambaSpec that are supported
RESERVE = 1  # tokens before a window that Tern keeps: the least that it accepts
AXES = ("layer", "head", "token", "dim")
STATE_AXES = ("layer", "state")
_DTYPES = {1: "uint8", 2: "uint16", 4: "uint32"}  # by element size: the bytes are only moved


class Tensor(Protocol):
    """The part of torch.Tensor that is used."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def device(self) -> Any: ...
    @property
    def dtype(self) -> object: ...
    def stride(self) -> Sequence[int]: ...
    def element_size(self) -> int: ...
    def data_ptr(self) -> int: ...


@dataclass(frozen=True)
class PageShape:
    """One block of a group's layers, as one rank has it.

    Within a layer it has the order of vLLM's tensor: head, token, and for each the content of K and
    V. For linear attention a block is the state behind its last token. A request that continues
    from there reads this block alone, so it is a window of one token.

    content: elements of K and V of a token and head, or of a state
    dtype, order: vLLM's names of the elements and of the order of its axes
    window: number of tokens before it that a token reads; 0: all
    is_state: a block is a state, and not KV of its tokens
    padding: bytes behind each layer's block, so that pages of all groups have one size, as vLLM's
        blocks do; they are not copied
    all_heads: number of heads of all ranks together
    """

    block_tokens: int
    layers: tuple[str, ...]
    heads: int
    content: int
    element_bytes: int
    dtype: str
    order: str
    window: int = 0
    is_state: bool = False
    padding: int = 0
    all_heads: int = 0

    @property
    def rows(self) -> int:
        """Rows of a block: one for each of its tokens, or one for the state."""
        return 1 if self.is_state else self.block_tokens

    @property
    def data_bytes(self) -> int:
        return self.heads * self.rows * self.content * self.element_bytes

    @property
    def layer_bytes(self) -> int:
        return self.data_bytes + self.padding

    @property
    def page_bytes(self) -> int:
        return len(self.layers) * self.layer_bytes

    @property
    def words(self) -> str:
        reach = f" with a window of {self.window}" if self.window else ""
        reach = " of states" if self.is_state else reach
        return f"{len(self.layers)} layers{reach}, pages of {self.block_tokens} tokens and {self.page_bytes} bytes"

    def first(self, at: int) -> int:
        """Returns the first block that is needed to continue from `at` tokens."""
        return max(at - self.window, 0) // self.block_tokens if self.window else 0

    @property
    def field(self) -> Field:
        """The field of a page. Each rank has some of the heads, or one that several ranks have if
        there are fewer heads than ranks."""
        token = self.content * self.element_bytes
        head = self.block_tokens * token
        axes = (
            Axis("layer", len(self.layers), self.layer_bytes),
            Axis("head", self.all_heads, head),
            Axis("token", self.block_tokens, token),
            Axis("dim", self.content, self.element_bytes),
        )
        return Field("kv", axes, self.element_bytes)

    def group(self, name: str, has_fields: bool) -> Group:
        inner = (self.layer_bytes,) if self.is_state else (self.heads, self.block_tokens, self.content)
        return Group(
            name,
            page_tokens=self.block_tokens,
            shape=(len(self.layers), *inner),
            dtype=_DTYPES[self.element_bytes],
            family="window" if self.window else "history",
            window=self.window,
            reserve=RESERVE if self.window else 0,
            axes=STATE_AXES if self.is_state else AXES,
            fields=(self.field,) if has_fields else (),
        )


@dataclass(frozen=True)
class Layout:
    """All groups of a model, of which each rank has a part of the heads."""

    shapes: tuple[PageShape, ...]
    ranks: int = 1

    @property
    def align(self) -> int:
        """Tokens of the shortest prefix that is whole blocks in every group. All that is matched
        and saved is a multiple of it."""
        return math.lcm(*(s.block_tokens for s in self.shapes))

    @property
    def words(self) -> str:
        return "; ".join(s.words for s in self.shapes)

    @property
    def slab_bytes(self) -> int:
        """A pool's size is a multiple of it."""
        return math.lcm(*(s.page_bytes for s in self.shapes))

    @cached_property
    def groups(self) -> list[Group]:
        """The kinds of page in Tern.

        Their names distinguish pools of other shapes or of another meaning of their bytes. They are
        the same over any number of ranks: such pools fetch pages from each other. States have no
        fields.
        """
        told = [(s.all_heads, s.content, len(s.layers), s.block_tokens, s.dtype, s.order, s.window) for s in self.shapes]
        mark = hashlib.blake2b(repr(told).encode(), digest_size=6).hexdigest()
        has_fields = not any(s.is_state for s in self.shapes)
        return [s.group(f"kv{i}-{mark}", has_fields) for i, s in enumerate(self.shapes)]

    def runs(
        self, pages: Callable[[int], Ids], blocks: Sequence[Sequence[int]], span: tuple[int, int], at: int
    ) -> tuple[Run, ...]:
        """Returns the pages and blocks of the tokens in `span`, without those that a request which
        continues from `at` or behind it does not need.

        pages: returns a session's table of a group
        blocks: vLLM's block table by group
        """
        found = []
        for i, s in enumerate(self.shapes):
            last = span[1] // s.block_tokens
            first = max(span[0] // s.block_tokens, s.first(at))
            found.append(Run(tuple(int(p) for p in pages(i)[first:last]), tuple(blocks[i][first:last])))
        return tuple(found)

    def can_end(self, depth: int, end: int) -> bool:
        """Returns whether a step after which `end` tokens are computed can save up to `depth`: vLLM
        has only the states of `end`."""
        return depth == end or not any(s.is_state for s in self.shapes)

    def whole_from(self, saved: int, start: int, depth: int) -> int:
        """Returns the least length whose windows can be saved whole; 0: all that Tern keeps.

        vLLM has dropped blocks behind `saved` tokens, since their windows moved on to `start`, and
        has only the states of `depth`.
        """
        lengths = []
        for s in self.shapes:
            dropped, reach = s.first(depth if s.is_state else start) * s.block_tokens, min(s.window, self.align)
            chunk = -(-(dropped + reach) // self.align) * self.align  # the first with the end of its window
            if chunk > saved + self.align:
                lengths.append((chunk - reach) // s.block_tokens * s.block_tokens + s.window)
        return max(lengths, default=0)


def layout_of(config: Any, ranks: int = 1, heads: int = 0) -> Layout:
    """Returns the layout of a KVCacheConfig. heads: KV heads over all ranks, if there are several.

    Raises:
        Refused: a part of the configuration is not supported.
    """
    order = str(config.kv_cache_layout)
    layout = Layout(tuple(_divided(_shape(g, order), ranks, heads) for g in config.kv_cache_groups), ranks)
    if any(s.is_state and s.block_tokens != layout.align for s in layout.shapes):
        raise Refused("the model's states and its KV have blocks of different sizes: tern.vllm does not know this model")
    if all(s.window for s in layout.shapes):
        raise Refused("the model has no layer with full attention: tern.vllm supports windows only beside full attention")
    return layout


def _divided(shape: PageShape, ranks: int, heads: int) -> PageShape:
    """Returns the shape with the number of heads over all ranks."""
    if ranks == 1:
        return replace(shape, all_heads=shape.heads)
    if shape.is_state:
        raise Refused(f"tensor_parallel_size={ranks}: tern.vllm supports states of linear attention on 1 rank only")
    if shape.heads != max(1, heads // ranks):
        raise Refused(
            f"each of {ranks} ranks has {shape.heads} heads of KV in a group, where the model has {heads}: tern.vllm does not "
            "know this division"
        )
    return replace(shape, all_heads=heads)


def _shape(group: Any, order: str) -> PageShape:
    spec = group.kv_cache_spec
    kind = type(spec).__name__
    if kind not in KINDS:
        raise Refused(f"the model has a group of KV that is {kind}: tern.vllm supports {' and '.join(KINDS)} only")
    if not group.enable_kv_transfer:
        raise Refused(f"vLLM does not share a group of KV ({kind}) with connectors: tern.vllm does not know this model")
    if kind == "MambaSpec":
        return _state_shape(group, order)
    element = spec.dtype.itemsize
    if spec.kv_quant_mode.value != 0 or spec.page_size_padded is not None or spec.tokens_per_state != 1:
        raise Refused("the model's KV is quantized, padded or packed: tern.vllm supports plain KV only")
    if element not in _DTYPES:
        raise Refused(f"KV of {spec.dtype} has elements of {element} bytes: tern.vllm supports 1, 2 and 4")
    shape = PageShape(
        spec.block_size,
        tuple(group.layer_names),
        spec.num_heads,
        spec.state_content_size_bytes // element,
        element,
        str(spec.dtype),
        order,
        _window(spec, kind),
    )
    if shape.layer_bytes != spec.page_size_bytes:
        raise Refused(
            f"a block of a layer has {spec.page_size_bytes} bytes where {shape.heads} heads of {spec.block_size} tokens "
            f"have {shape.layer_bytes}: tern.vllm does not know this layout"
        )
    return shape


def _state_shape(group: Any, order: str) -> PageShape:
    spec = group.kv_cache_spec
    if spec.mamba_type.name not in STATES:
        raise Refused(f"the model has states of {spec.mamba_type.name}: tern.vllm supports {' and '.join(STATES)} only")
    if spec.mamba_cache_mode != "align":
        raise Refused(
            f"mamba_cache_mode={spec.mamba_cache_mode!r}: vLLM keeps states of linear attention at the ends of blocks only "
            "with its own prefix cache: start with --enable-prefix-caching"
        )
    if spec.num_speculative_blocks or spec.num_prefill_checkpoint_blocks or spec.num_heads != 1:
        raise Refused("the model's states have blocks beside them: tern.vllm does not know this layout")
    meaning = [(tuple(shape), str(dtype)) for shape, dtype in zip(spec.shapes, spec.dtypes)]
    return PageShape(
        spec.block_size,
        tuple(group.layer_names),
        heads=1,
        content=spec.state_content_size_bytes,
        element_bytes=1,
        dtype="torch.int8",
        order=f"{order} {spec.mamba_type.name} {meaning}",
        window=1,
        is_state=True,
        padding=spec.page_size_bytes - spec.state_content_size_bytes,
    )


def _window(spec: Any, kind: str) -> int:
    """Returns the window as Tern counts it: vLLM's count includes the token that reads."""
    if kind == "SlidingWindowSpec":
        if spec.sliding_window < 2 or spec.extra_retained_tokens:
            raise Refused(
                f"sliding_window={spec.sliding_window}, extra_retained_tokens={spec.extra_retained_tokens}: tern.vllm "
                "supports windows of at least 2 tokens, without retained tokens"
            )
        return int(spec.sliding_window) - 1
    if spec.non_causal:
        raise Refused("the model's prompts are attended to in both directions: their KV does not depend on the prefix alone")
    if spec.attention_chunk_size is not None:
        raise Refused("the model has layers with chunked attention: tern.vllm does not support it")
    if spec.sliding_window is not None:
        raise Refused(
            "vLLM keeps all KV of layers with a window, and tern.vllm needs windows in groups of their own: start without "
            "--disable-hybrid-kv-cache-manager"
        )
    return 0


@dataclass(frozen=True)
class Layer:
    """The place of a layer's blocks in this process. Layers of different groups may share bytes:
    vLLM assigns a block to one group at a time."""

    address: int  # of block 0
    stride: int  # bytes from one block to the next


def layers_of(layout: Layout, caches: Mapping[str, Tensor], blocks: int) -> list[list[Layer]]:
    """Returns the layers by group. Raises Refused if the tensors are not as the configuration has
    them: one block of a layer must be one run of bytes."""
    named = [name for shape in layout.shapes for name in shape.layers]
    if missing := sorted(set(named) - set(caches)):
        raise Refused(f"vLLM has no KV tensor for layer {missing[0]!r}: tern.vllm does not know this model")
    if more := sorted(set(caches) - set(named)):
        raise Refused(f"vLLM has KV that no group names, such as {more[0]!r}: tern.vllm does not know this model")
    return [[_layer(shape, name, caches[name], blocks) for name in shape.layers] for shape in layout.shapes]


def _layer(shape: PageShape, name: str, tensor: Tensor, blocks: int) -> Layer:
    wanted = (blocks, shape.heads, shape.rows, shape.content)
    strides = tuple(tensor.stride())
    inner = tuple(math.prod(wanted[i + 1 :]) for i in (1, 2, 3))
    if tensor.device.type != "cpu":
        raise Refused(f"layer {name!r} lies on {tensor.device}: tern.vllm supports host memory only")
    if tuple(tensor.shape) != wanted or str(tensor.dtype) != shape.dtype:
        raise Refused(
            f"layer {name!r} is {tensor.dtype} of shape {tuple(tensor.shape)}, not {shape.dtype} of {wanted}: "
            "tern.vllm does not know this layout"
        )
    if any(n > 1 and stride != dense for n, stride, dense in zip(wanted[1:], strides[1:], inner)):
        raise Refused(
            f"layer {name!r} has strides {strides}: a block of it is not one run of bytes, as tern.vllm needs it"
        )
    return Layer(tensor.data_ptr(), strides[0] * shape.element_bytes)
