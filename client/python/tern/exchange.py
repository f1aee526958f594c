"""Pages of a pool for libraries that have arrays of their own, without a copy.

Pool.view returns a Pages, which implements DLPack and, on a GPU, `__cuda_array_interface__`.
Invariant: a tensor that was exported keeps its mapping alive until its consumer deletes it.
"""

from __future__ import annotations

import ctypes as ct
from typing import TYPE_CHECKING, Any

from .layout import dtype_of

if TYPE_CHECKING:
    from .connection import Handle
    from .layout import Group

CPU, CUDA = 1, 2  # DLDeviceType

# DLDataTypeCode, by the kind of a NumPy dtype.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class DLDevice(ct.Structure):
    _fields_ = [("device_type", ct.c_int32), ("device_id", ct.c_int32)]


class DLDataType(ct.Structure):
    _fields_ = [("code", ct.c_uint8), ("bits", ct.c_uint8), ("lanes", ct.c_uint16)]


class DLTensor(ct.Structure):
    _fields_ = [
        ("data", ct.c_void_p),
        ("device", DLDevice),
        ("ndim", ct.c_int32),
        ("dtype", DLDataType),
        ("shape", ct.POINTER(ct.c_int64)),
        ("strides", ct.POINTER(ct.c_int64)),
        ("byte_offset", ct.c_uint64),
    ]


class DLManagedTensor(ct.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ct.c_void_p), ("deleter", ct.c_void_p)]


_NAME = b"dltensor"  # name of a capsule that no consumer has taken yet
_capsule_new = ct.PYFUNCTYPE(ct.py_object, ct.c_void_p, ct.c_char_p, ct.c_void_p)(("PyCapsule_New", ct.pythonapi))
_capsule_is = ct.PYFUNCTYPE(ct.c_int, ct.c_void_p, ct.c_char_p)(("PyCapsule_IsValid", ct.pythonapi))
_capsule_at = ct.PYFUNCTYPE(ct.c_void_p, ct.c_void_p, ct.c_char_p)(("PyCapsule_GetPointer", ct.pythonapi))

# Exported tensors by address: each with its arrays, and the mapping that it lies in.
_held: dict[int, tuple[DLManagedTensor, Any, Handle]] = {}


def _let_go(tensor: int, held: dict[int, tuple[DLManagedTensor, Any, Handle]] = _held) -> None:
    held.pop(tensor, None)


def _capsule_gone(capsule: int, is_it: Any = _capsule_is, at: Any = _capsule_at, name: bytes = _NAME) -> None:
    if is_it(capsule, name):  # a consumer that took the tensor renamed it, and calls the deleter
        _let_go(at(capsule, name))


_deleter = ct.CFUNCTYPE(None, ct.c_void_p)(_let_go)
_destructor = ct.PYFUNCTYPE(None, ct.c_void_p)(_capsule_gone)
for _called in _deleter, _destructor:  # capsules call them, and may outlive this module
    ct.pythonapi.Py_IncRef(ct.py_object(_called))


class Pages:
    """All pages of a group, as Pool.view returns them.

    `torch.from_dlpack(view)`, `cupy.asarray(view)` and the like make an array of it, which keeps
    the mapping alive. Nothing here waits for a stream: the engine has to know which kernels are
    done.

    shape, dtype: (pages, *group.shape), and the group's dtype
    device: CUDA's number of the GPU in this process; None: memory of the host
    """

    def __init__(self, handle: Handle, group: Group, address: int, count: int, device: int | None) -> None:
        self._handle, self._address = handle, address
        self.shape = (count, *group.shape)
        self.dtype = dtype_of(group.name, group.dtype)
        self.device = device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device is None:
            raise AttributeError("these pages are in host memory: use DLPack, or Pool.pages")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._address, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CPU, 0) if self.device is None else (CUDA, self.device)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Returns a capsule with a DLManagedTensor of before DLPack 1.0, which all libraries read.

        Raises:
            BufferError: a copy or another device was asked for, or DLPack has no such dtype.
        """
        del stream, max_version
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("pages are exported in place, and never copied")
        if self.dtype.kind not in _CODES or not self.dtype.isnative:
            raise BufferError(f"DLPack has no type for {self.dtype}")
        shape = (ct.c_int64 * len(self.shape))(*self.shape)
        tensor = DLManagedTensor(deleter=ct.cast(_deleter, ct.c_void_p))
        tensor.dl_tensor = DLTensor(
            data=self._address,
            device=DLDevice(*self.__dlpack_device__()),
            ndim=len(self.shape),
            dtype=DLDataType(_CODES[self.dtype.kind], self.dtype.itemsize * 8, 1),
            shape=shape,
        )
        _held[ct.addressof(tensor)] = tensor, shape, self._handle
        return _capsule_new(ct.addressof(tensor), _NAME, ct.cast(_destructor, ct.c_void_p))
