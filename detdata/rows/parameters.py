"""Parameters of extension types, read as Arrow hands types to other libraries.

pyarrow does not show those of the types that it makes itself; its C data interface, which is public, has them all.
"""

from __future__ import annotations

import ctypes
from typing import Any

_KEY = b"ARROW:extension:metadata"
_NUMBER = ctypes.sizeof(ctypes.c_int32)


class _Schema(ctypes.Structure):
    """The first members of Arrow's `struct ArrowSchema`, of which only `metadata` is looked at."""

    _fields_ = (("format", ctypes.c_void_p), ("name", ctypes.c_void_p), ("metadata", ctypes.c_void_p))


def extension_parameters(kind: Any) -> bytes:
    """Return the parameters of an extension type that pyarrow knows, as they would be in a file; b"" without any.

    >>> import pyarrow as pa
    >>> extension_parameters(pa.fixed_shape_tensor(pa.int8(), [2, 3]))
    b'{"shape":[2,3]}'
    """
    capsule = kind.__arrow_c_schema__()  # it owns what is read here
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    at = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(_Schema)).contents.metadata
    if at is None:
        return b""

    def number() -> int:
        nonlocal at
        value = ctypes.c_int32.from_address(at).value
        at += _NUMBER
        return value

    def text() -> bytes:
        nonlocal at
        size = number()
        value = ctypes.string_at(at, size)
        at += size
        return value

    pairs = [(text(), text()) for _ in range(number())]
    return dict(pairs).get(_KEY, b"")
