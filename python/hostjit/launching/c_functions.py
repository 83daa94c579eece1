# SPDX-License-Identifier: Apache-2.0
"""C functions of this process: of ctypes, cffi and numba."""

from __future__ import annotations

import ctypes
import dataclasses
from _ctypes import CFuncPtr
from typing import Any

__all__ = ["CFunction", "c_function_of"]

_FLAG_PYTHON_API = 4
_INTEGERS = "bBhHiIlLqQ"
_FLOATS = {"f": "f32", "d": "f64"}
_POINTERS = "Pz"


@dataclasses.dataclass(frozen=True)
class CFunction:
    """A C function: its address, its name if it has one, and its parameters if it says."""

    address: int
    name: str | None
    parameters: tuple[str, ...] | None


def c_function_of(code: Any) -> CFunction | None:
    """What a function of ctypes, cffi or numba is; None for what is none.

    Raises: TypeError for a function that can't be a kernel, ValueError for one that is null.
    """
    found = _of(code)
    if found is not None and found.address == 0:
        raise ValueError("kernel: the address of the C function is 0")
    return found


def _of(code: Any) -> CFunction | None:
    if isinstance(code, CFuncPtr):
        return _of_ctypes(code)
    if isinstance(getattr(code, "address", None), int):  # numba.cfunc
        function = getattr(code, "ctypes", None)
        if isinstance(function, CFuncPtr):
            found = _of_ctypes(function)
            name = getattr(code, "__name__", None)
            return dataclasses.replace(found, address=code.address, name=name)
    if type(code).__module__ == "_cffi_backend":
        return _of_cffi(code)
    return None


def _of_ctypes(function: Any) -> CFunction:
    name = getattr(function, "__name__", None)
    what = f"kernel '{name or 'function'}'"
    if type(function)._flags_ & _FLAG_PYTHON_API:
        raise TypeError(
            f"{what} is a function of ctypes.PyDLL, which needs the GIL: kernels run without it"
        )
    # A function of a library returns an int until somebody says otherwise.
    if function.restype not in (None, ctypes.c_int):
        raise TypeError(f"{what} returns {_name(function.restype)}, expected None")
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    if function.argtypes is None:
        return CFunction(address, name, None)
    words = (_word(type_, f"{what}: argtypes[{i}]") for i, type_ in enumerate(function.argtypes))
    return CFunction(address, name, tuple(words))


def _word(type_: Any, what: str) -> str:
    """The type of a parameter by that of ctypes."""
    code: Any = getattr(type_, "_type_", None)
    if isinstance(type_, type) and issubclass(type_, ctypes._Pointer):
        pointee = getattr(code, "_type_", None)
        element = _number(pointee, ctypes.sizeof(code)) if isinstance(pointee, str) else None
        return f"{element}*" if element else "ptr"
    if isinstance(code, str) and code in _POINTERS:
        return "ptr"
    word = _number(code, ctypes.sizeof(type_)) if isinstance(code, str) else None
    if word is None or word == "bool":
        raise TypeError(f"{what} is {_name(type_)}, expected a pointer, an integer or a float")
    return f"i{word[1:]}" if word[0] == "u" else word


def _number(code: str, size: int) -> str | None:
    if code in _INTEGERS:
        return f"{'u' if code.isupper() else 'i'}{8 * size}"
    return "bool" if code == "?" else _FLOATS.get(code)


def _name(type_: Any) -> str:
    return getattr(type_, "__name__", str(type_))


def _of_cffi(pointer: Any) -> CFunction | None:
    """A pointer to a function, whose ctype is its signature."""
    import _cffi_backend  # type: ignore[import-not-found,import-untyped,unused-ignore]

    if not isinstance(pointer, _cffi_backend._CDataBase):
        return None
    ffi = _cffi_backend.FFI()
    signature = ffi.typeof(pointer)
    if signature.kind != "function":
        raise TypeError(
            f"kernel: got a {signature.cname} of cffi, expected a pointer to a function"
        )
    what = f"kernel: the {signature.cname} of cffi"
    if signature.ellipsis:
        raise TypeError(f"{what} takes any number of arguments")
    if signature.result.kind != "void":
        raise TypeError(f"{what} returns {signature.result.cname}, expected void")
    words = []
    for position, type_ in enumerate(signature.args):
        word = _cffi_word(ffi, type_)
        if word is None:
            raise TypeError(
                f"{what}: parameter {position} is {type_.cname}, expected a pointer, an integer or "
                "a float"
            )
        words.append(word)
    return CFunction(int(ffi.cast("uintptr_t", pointer)), None, tuple(words))


def _cffi_word(ffi: Any, type_: Any) -> str | None:
    if type_.kind == "pointer":
        element = _cffi_number(ffi, type_.item)
        return f"{element}*" if element else "ptr"
    word = _cffi_number(ffi, type_)
    if word is None or word == "bool":
        return None
    return f"i{word[1:]}" if word[0] == "u" else word


def _cffi_number(ffi: Any, type_: Any) -> str | None:
    if type_.kind != "primitive":
        return None
    named = {"float": "f32", "double": "f64", "_Bool": "bool"}
    if type_.cname in named:
        return named[type_.cname]
    if type_.cname in ("char", "wchar_t", "char16_t", "char32_t", "long double"):
        return None
    if "complex" in type_.cname.lower():
        return None
    is_signed = int(ffi.cast(type_, -1)) < 0
    return f"{'i' if is_signed else 'u'}{8 * ffi.sizeof(type_)}"
