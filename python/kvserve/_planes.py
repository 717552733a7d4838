"""Tensors as the library sees them: address, shape, strides in elements, dtype.

Takes torch tensors, numpy arrays and whatever speaks DLPack or the buffer protocol. Neither torch
nor numpy is imported before a tensor asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _native
from ._errors import BadInputError, InvalidArgumentError, UnsupportedError

# What carries the bits of a dtype that the tensor library lacks.
_CARRIERS = {1: ("uint8", "int8"), 2: ("uint16", "int16"), 4: ("uint32", "int32")}


class Plane(NamedTuple):
    """One tensor in host memory."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str
    writable: bool


def plane_of(tensor: Any, dtype: str | None = None) -> Plane:
    """The memory of `tensor`, nothing copied. `dtype` says what unsigned integers carry."""
    if hasattr(tensor, "data_ptr") and hasattr(tensor, "stride"):
        return _of_torch(tensor, dtype)
    return _of_numpy(tensor, dtype)


def _of_torch(tensor: Any, dtype: str | None) -> Plane:
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"a tensor is on {tensor.device}; host memory is needed")
    own = str(tensor.dtype).removeprefix("torch.")
    name = _dtype(own, tensor.element_size(), dtype)
    return Plane(tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), name, True)


def _of_numpy(tensor: Any, dtype: str | None) -> Plane:
    import numpy

    array = tensor
    if not isinstance(array, numpy.ndarray):
        try:
            array = (numpy.from_dlpack(tensor) if hasattr(tensor, "__dlpack__")
                     else numpy.asarray(memoryview(tensor)))
        except (TypeError, BufferError, RuntimeError, ValueError) as error:
            raise BadInputError(f"{type(tensor).__name__} is no tensor in host memory: "
                                f"{error}") from error
    size = array.dtype.itemsize
    name = _dtype(array.dtype.name, size, dtype)
    if not array.dtype.isnative or any(stride % size for stride in array.strides):
        raise BadInputError("an array is not in the machine's byte order or not in whole elements")
    return Plane(array.__array_interface__["data"][0], array.shape,
                 tuple(stride // size for stride in array.strides), name, array.flags.writeable)


def _dtype(own: str, size: int, wanted: str | None) -> str:
    if wanted is None:
        if own in _native.DTYPE_BYTES:
            return own
        hint = " (numpy has no bfloat16: view it as uint16 and pass dtype='bfloat16')"
        raise UnsupportedError(f"dtype {own} is not one of {', '.join(_native.DTYPE_BYTES)}"
                               f"{hint if size == 2 else ''}")
    if wanted not in _native.DTYPE_BYTES:
        raise InvalidArgumentError(f"dtype '{wanted}' is not one of "
                                   f"{', '.join(_native.DTYPE_BYTES)}")
    if own != wanted and (size != _native.DTYPE_BYTES[wanted] or own not in _CARRIERS[size]):
        raise InvalidArgumentError(f"a tensor of {own} holds no {wanted}")
    return wanted


def same_dtype(planes: Sequence[Plane | None]) -> str:
    """The one dtype of all planes."""
    names = {plane.dtype for plane in planes if plane is not None}
    if len(names) != 1:
        raise InvalidArgumentError(f"planes have the dtypes {sorted(names)}; a cache has one"
                                   if names else "there are no planes")
    return names.pop()
