"""Which bytes of vLLM's KV tensors are one page of Tern: block b of every layer, one layer after the other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..layout import Group
from .settings import Refused

GROUP = "kv"
AXES = ("layer", "head", "token", "dim")
_DTYPES = {1: "uint8", 2: "uint16", 4: "uint32"}  # by element size: the bytes are moved, never computed with


class Tensor(Protocol):
    """What is asked of a torch.Tensor."""

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
    """One block of all layers. Within a layer it lies as vLLM's tensor has it: head, token, and for each the content
    of K and V.

    dtype, order: how vLLM names the elements, and the order of its axes
    """

    block_tokens: int
    layers: tuple[str, ...]
    heads: int
    content: int  # elements of K and V of a token and head
    element_bytes: int
    dtype: str
    order: str

    @property
    def layer_bytes(self) -> int:
        return self.heads * self.block_tokens * self.content * self.element_bytes

    @property
    def page_bytes(self) -> int:
        return len(self.layers) * self.layer_bytes

    @property
    def words(self) -> str:
        return f"{len(self.layers)} layers, pages of {self.block_tokens} tokens and {self.page_bytes} bytes"

    def group(self) -> Group:
        """The kind of page in Tern. Its name tells pools of other shapes, or other meanings of their bytes, apart."""
        told = (self.heads, self.content, len(self.layers), self.block_tokens, self.dtype, self.order)
        mark = hashlib.blake2b(repr(told).encode(), digest_size=6).hexdigest()
        return Group(
            f"{GROUP}-{mark}",
            page_tokens=self.block_tokens,
            shape=(len(self.layers), self.heads, self.block_tokens, self.content),
            dtype=_DTYPES[self.element_bytes],
            axes=AXES,
        )


def page_shape(config: Any) -> PageShape:
    """Of a KVCacheConfig, or Refused with what of it cannot be carried."""
    groups = config.kv_cache_groups
    if len(groups) != 1:
        kinds = ", ".join(type(g.kv_cache_spec).__name__ for g in groups)
        raise Refused(f"the model has {len(groups)} groups of KV ({kinds}): tern.vllm carries 1 yet, full attention")
    spec = groups[0].kv_cache_spec
    if type(spec).__name__ != "FullAttentionSpec":
        raise Refused(f"the model's KV is {type(spec).__name__}: tern.vllm carries full attention alone yet")
    if spec.sliding_window is not None or spec.attention_chunk_size is not None:
        raise Refused("the model has layers with a window: tern.vllm carries full attention alone yet")
    if spec.kv_quant_mode.value != 0 or spec.page_size_padded is not None or spec.tokens_per_state != 1:
        raise Refused("the model's KV is quantized, padded or packed: tern.vllm carries plain KV alone yet")
    element = spec.dtype.itemsize
    if element not in _DTYPES:
        raise Refused(f"KV of {spec.dtype} has elements of {element} bytes: tern.vllm carries 1, 2 and 4")
    heads, content = spec.num_heads, spec.state_content_size_bytes // element
    shape = PageShape(
        spec.block_size,
        tuple(groups[0].layer_names),
        heads,
        content,
        element,
        str(spec.dtype),
        str(config.kv_cache_layout),
    )
    if shape.layer_bytes != spec.page_size_bytes:
        raise Refused(
            f"a block of a layer has {spec.page_size_bytes} bytes where {heads} heads of {spec.block_size} tokens have "
            f"{shape.layer_bytes}: tern.vllm does not know this layout"
        )
    return shape


@dataclass(frozen=True)
class Layer:
    """Where a layer's blocks lie in this process."""

    address: int  # of block 0
    stride: int  # bytes from one block to the next


def layers_of(shape: PageShape, caches: Mapping[str, Tensor], blocks: int) -> list[Layer]:
    """Checks that the tensors are as the configuration said: one block of a layer is one run of bytes."""
    found = []
    for name in shape.layers:
        if name not in caches:
            raise Refused(f"vLLM has no KV tensor for layer {name!r}: tern.vllm does not know this model")
        found.append(_layer(shape, name, caches[name], blocks))
    if more := sorted(set(caches) - set(shape.layers)):
        raise Refused(f"vLLM has KV that no group names, such as {more[0]!r}: tern.vllm does not know this model")
    return found


def _layer(shape: PageShape, name: str, tensor: Tensor, blocks: int) -> Layer:
    wanted = (blocks, shape.heads, shape.block_tokens, shape.content)
    strides = tuple(tensor.stride())
    inner = tuple(math.prod(wanted[i + 1 :]) for i in (1, 2, 3))
    if tensor.device.type != "cpu":
        raise Refused(f"layer {name!r} lies on {tensor.device}: tern.vllm carries host memory alone yet")
    if tuple(tensor.shape) != wanted or str(tensor.dtype) != shape.dtype:
        raise Refused(
            f"layer {name!r} is {tensor.dtype} of shape {tuple(tensor.shape)}, not {shape.dtype} of {wanted}: "
            "tern.vllm does not know this layout"
        )
    if strides[1:] != inner:
        raise Refused(
            f"layer {name!r} has strides {strides}: a block of it is not one run of bytes, as tern.vllm needs it"
        )
    return Layer(tensor.data_ptr(), strides[0] * shape.element_bytes)
