# SPDX-License-Identifier: Apache-2.0
"""Numbers that recorded code reads of tensors, and does nothing with but compare and compute.

Of `while residual.item() > limit`, a replay need not compare the number, but what the code has
decided by it. The number stays a tensor as long as the function that reads it keeps it to itself.
"""

from __future__ import annotations

import dis
import operator
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from hostjit.bytecode.made_code import origin_of
from hostjit.bytecode.places import NOTHING_LEFT
from hostjit.capturing.instances import is_namedtuple_type, is_one_of
from hostjit.recording.code.libraries import is_library
from hostjit.recording.graph.kept_numbers import first_parameter, is_kept, keeps
from hostjit.recording.graph.places import selected
from hostjit.recording.stand_in import StandIn

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = [
    "LARGEST_SMALL_INT",
    "TENSORS",
    "ReadNumber",
    "hand_over_numbers",
    "number_of",
    "plain_result",
    "plain_values",
    "with_values_read",
]

_Number = bool | int | float

TENSORS = (torch.Tensor, torch.nn.Parameter)
"""What is read of others is left to them."""
# Such ints are floats of 64 bits.
_LARGEST_INT = 2**53
LARGEST_SMALL_INT = 2**52
"""Of an argument that may be any: such ints, and what is added to them, fit into a float."""
# What may be added to one, in each of thousands of passes.
_LARGEST_ADDED = 2**31
# What computes with numbers, by the names of methods: as tensors do, and in ways of Python's own.
_COMPUTED = ("add", "sub", "mul", "truediv")
_READ = ("pow", "mod", "floordiv", "matmul", "and", "or", "xor", "lshift", "rshift")
_FUNCTIONS = {"and": "and_", "or": "or_"}
# The first of the ways of BINARY_OP that write to their first operand.
_FIRST_IN_PLACE = 13


def number_of(
    tensor: Any, frame: types.FrameType, recorder: Recorder, *, is_float: bool = False
) -> ReadNumber | None:
    """Return what stands for the number that `tensor.item()` gives to the code of a frame.

    `is_float`: the number that `float(tensor)` gives to it.

    Returns None where others may see the number, and where it has no such stand-in. What the
    recorded call returns, others may see by `plain_result`.
    """
    if not is_one_of(type(tensor), TENSORS) or tensor.numel() != 1:
        return None
    if tensor.device.type not in ("cpu", "cuda") or tensor.layout is not torch.strided:
        return None
    dtype = tensor.dtype
    is_int = dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if not (is_int or dtype.is_floating_point) or is_library(frame.f_code.co_filename):
        return None
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    if not is_kept(frame, recorder, is_float=is_float):
        return None
    is_int = is_int and not is_float
    # A copy: the tensor may be written.
    plain = tensor.detach().reshape(()).to(torch.int64 if is_int else torch.float64, copy=True)
    return ReadNumber(plain, recorder)


def plain_values(result: Any) -> dict[int, Any]:
    """Return the numbers, and arrays, that stand-ins in a result stand for, by ids of these."""
    found: dict[int, Any] = {}

    def look(value: Any) -> None:
        kind = type(value)
        if id(value) in found:
            return
        if issubclass(kind, StandIn):
            found[id(value)] = value.plain()
        elif is_one_of(kind, (tuple, list, dict)):
            found[id(value)] = value  # while what is in it is looked at
            for item in value.values() if kind is dict else value:
                look(item)
            del found[id(value)]

    look(result)
    return found


def plain_result(result: Any, others: Mapping[int, Any]) -> Any:
    """Return the result of a recorded call with others in place of what it has, by ids of that.

    Lists and dicts in it stay what they are, and have others in them.
    """
    return _plain(result, dict(others))


def hand_over_numbers(frame: types.FrameType) -> None:
    """Give the code of a frame, which begins, numbers in place of what stands for them.

    Operators of Python call methods of what they are given besides such a number. Code that keeps
    a number to itself goes on with what stands for it.
    """
    given, code = frame.f_locals, origin_of(frame.f_code)
    for name in [name for name, value in given.items() if isinstance(value, StandIn)]:
        receiver = given.get(first_parameter(code))
        is_number = isinstance(given[name], ReadNumber)
        is_truth = is_number and given[name].tensor.dtype is torch.bool
        if not (is_number and keeps(code, frame.f_globals, receiver, name, is_truth=is_truth)):
            given[name] = given[name].read()


def _plain(value: Any, made: dict[int, Any]) -> Any:
    """A value with others in it; `made`: what is what by now, containers stay one object."""
    kind = type(value)
    if kind is torch.Tensor or issubclass(kind, StandIn):
        return made.get(id(value), value)
    is_tuple = kind is tuple or is_namedtuple_type(kind)
    if not (is_tuple or is_one_of(kind, (list, dict))):
        return value
    if id(value) not in made:
        made[id(value)] = value  # while what is in it is looked at
        items = [*value.values()] if kind is dict else [*value]
        plain = [_plain(item, made) for item in items]
        if all(map(operator.is_, plain, items)):
            pass
        elif is_tuple:
            made[id(value)] = tuple.__new__(kind, plain)
        elif kind is dict:
            value.update(zip(value, plain, strict=True))
        else:
            value[:] = plain
    return made[id(value)]


def with_values_read(index: Any) -> Any:
    """Return an index with values in place of what stands for them."""
    if isinstance(index, StandIn):
        return index.read()
    if type(index) in (tuple, list):
        return type(index)(map(with_values_read, index))
    return index


class ReadNumber(StandIn):
    """What a tensor without dims has in it, an int or a float: comparing it reads the answer alone.

    Whatever else is done with it reads the number, and does that with it.

    Attributes:
        tensor: of int64 or float64, or of bool where it stands for True or False.
        is_small: it is an int that fits into a float.
    """

    __slots__ = ("_recorder", "is_small", "tensor")
    __array_ufunc__ = None  # NumPy's numbers leave it to this class

    def __init__(self, tensor: torch.Tensor, recorder: Recorder, *, is_small: bool = False) -> None:
        """`tensor`: of int64, float64 or bool, without a gradient."""
        self.tensor = tensor
        self.is_small = is_small
        self._recorder = recorder

    def _another(self, tensor: torch.Tensor, *, is_small: bool = False) -> ReadNumber:
        """A number that is made of this one."""
        return ReadNumber(tensor, self._recorder, is_small=is_small)

    def _as_float(self) -> ReadNumber:
        return self._another(self.tensor.to(torch.float64))

    def followed_float(self) -> ReadNumber:
        """Return what stands for `float(number)`, for `float_of`."""
        return self if self._is_float else self._as_float()

    def followed_place(self, container: Any, index: Any) -> tuple[Any, Any]:
        """Return what `PLACES` looks up in place of `container[index]`."""
        found = selected(container, index, self._recorder)
        if found is None:
            if self._recorder.depends_on_open(self.tensor):
                self._recorder.refuse("it looks up another item for each of many numbers")
            return container, with_values_read(index)
        selection, left = found
        return selection, left or NOTHING_LEFT

    def followed_value(self, container: Any) -> Any:
        """Return what `PLACES` puts into a container as the number."""
        return self.tensor if _is_real(container) else self.read()

    def plain(self) -> _Number:
        """Return the number, for what comes behind the call."""
        number: _Number = self.tensor.item()
        return number

    def read(self) -> _Number:
        """Return the number. From then on a replay compares it."""
        number: _Number = self.tensor.item()
        return number

    @property
    def _is_float(self) -> bool:
        return self.tensor.is_floating_point()

    def _operand(self, other: object) -> torch.Tensor | float | None:
        """What another number is to the tensor, where they meet as in Python; None elsewhere."""
        if isinstance(other, ReadNumber):
            if self._is_float and other.is_small:
                other = other._as_float()
            tensor = other.tensor
            same = tensor.dtype == self.tensor.dtype and tensor.device == self.tensor.device
            return tensor if same else None
        if type(other) is float:
            return other if self._is_float else None
        if type(other) is not int:
            return None
        if self._is_float:
            return float(other) if abs(other) <= _LARGEST_INT else None
        return other if -(2**63) <= other < 2**63 else None

    def followed_comparison(self, other: object, compare: Callable[[Any, Any], Any]) -> Any:
        """Return what comparing finds, in a tensor where no value need be read for that."""
        if _is_real(other) and self.tensor.is_cpu and (self._is_float or self.is_small):
            return compare(self.tensor.to(other.dtype), other)
        if self.is_small and _is_float(other):
            return self._as_float().followed_comparison(other, compare)
        operand = self._operand(other)
        return compare(self.read(), other) if operand is None else compare(self.tensor, operand)

    def _compare(self, other: object, compare: Callable[[Any, Any], Any]) -> Any:
        found = self.followed_comparison(other, compare)
        is_answer = type(found) is torch.Tensor and not isinstance(other, torch.Tensor)
        return bool(found) if is_answer else found

    def __lt__(self, other: object) -> Any:
        return self._compare(other, operator.lt)

    def __le__(self, other: object) -> Any:
        return self._compare(other, operator.le)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, operator.ne)

    def __gt__(self, other: object) -> Any:
        return self._compare(other, operator.gt)

    def __ge__(self, other: object) -> Any:
        return self._compare(other, operator.ge)

    def __hash__(self) -> int:
        return hash(self.read())

    def __bool__(self) -> bool:
        return bool(self.tensor != 0)

    def __neg__(self) -> Any:
        if self._is_float or self.is_small:
            return self._another(-self.tensor, is_small=self.is_small)
        return -self.read()

    def __abs__(self) -> Any:
        if self._is_float or self.is_small:
            return self._another(self.tensor.abs(), is_small=self.is_small)
        return abs(self.read())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.read(), digits)

    def __int__(self) -> int:
        return int(self.read())

    def __index__(self) -> int:
        number: Any = self.read()
        return operator.index(number)

    def __float__(self) -> float:
        return float(self.read())

    def __repr__(self) -> str:
        return repr(self.read())

    def __format__(self, specification: str) -> str:
        return format(self.read(), specification)

    def _compute(
        self, name: str, other: object, frame: types.FrameType, *, is_second: bool = False
    ) -> Any:
        """What an operator gives to the code of a frame, for the number and something else."""
        in_place = is_second and _is_in_place(frame)
        if self.is_small and not (_is_real(other) or _is_float(other) or name == "truediv"):
            made = None if in_place else self._compute_small(name, other, frame, is_second)
        else:
            number = self._as_float() if self.is_small else self
            made = None if in_place else number._compute_float(name, other, frame, is_second)
        if made is not None:
            return made
        compute = getattr(operator, f"i{name}" if in_place else _FUNCTIONS.get(name, name))
        plain = self.read()
        return compute(other, plain) if is_second else compute(plain, other)

    def _compute_float(
        self, name: str, other: object, frame: types.FrameType, is_second: bool
    ) -> Any:
        """What an operator makes of a float and something else; None: the number is read."""
        # A GPU divides by multiplying with the reciprocal, and a CPU takes no tensor from there.
        if name not in _COMPUTED or not self._is_float or not self.tensor.is_cpu:
            return None
        if _is_real(other):
            cast = self.tensor.to(other.dtype)
            return getattr(other, f"__{'' if is_second else 'r'}{name}__")(cast)
        operand = self._operand(other)
        if operand is None or not is_kept(frame, self._recorder):
            return None
        pair: Any = (operand, self.tensor) if is_second else (self.tensor, operand)
        if name != "truediv":
            return self._another(getattr(operator, name)(*pair))
        return self._another(_quotient(*pair)) if pair[1] != 0 else None  # where it raises

    def _compute_small(
        self, name: str, other: object, frame: types.FrameType, is_second: bool
    ) -> Any:
        """What an operator makes of a small int and an int; None: the number is read."""
        operand: Any = other.tensor if isinstance(other, ReadNumber) and other.is_small else other
        is_constant = type(other) is int
        if not is_kept(frame, self._recorder) or (is_constant and abs(operand) > _LARGEST_ADDED):
            return None
        if name in ("mod", "floordiv") and is_constant and operand > 0 and not is_second:
            divide = torch.remainder if name == "mod" else torch.floor_divide
            return self._another(divide(self.tensor, operand), is_small=True)
        if name not in ("add", "sub", "mul") or not (is_constant or operand is not other):
            return None
        pair = (operand, self.tensor) if is_second else (self.tensor, operand)
        compute = getattr(operator, name)
        if name == "mul" or not is_constant:
            # Pass after pass, it may grow out of its dtype.
            first, second = (abs(each + 0.0) for each in pair)
            size = first * second if name == "mul" else first + second
            if not size <= LARGEST_SMALL_INT:
                return None
        return self._another(compute(*pair), is_small=True)


def _is_float(value: object) -> bool:
    return type(value) is float or (isinstance(value, ReadNumber) and value._is_float)


def _quotient(first: torch.Tensor | float, second: torch.Tensor | float) -> torch.Tensor:
    """The quotient as Python rounds it: PyTorch multiplies a float by the reciprocal."""
    if isinstance(first, torch.Tensor):
        return first / second
    assert isinstance(second, torch.Tensor)
    return second.new_full((), first) / second


def _is_in_place(frame: types.FrameType) -> bool:
    """Whether the code of a frame asks for an operator that writes to its first operand."""
    operation, argument = frame.f_code.co_code[frame.f_lasti :][:2]
    return operation == dis.opmap["BINARY_OP"] and argument >= _FIRST_IN_PLACE


def _is_real(other: object) -> TypeGuard[torch.Tensor]:
    """Whether something is a tensor that meets a tensor of one number as it meets a number."""
    if not isinstance(other, torch.Tensor) or not is_one_of(type(other), TENSORS):
        return False
    return other.is_cpu and other.dtype in (torch.float32, torch.float64)


def _number_first(name: str) -> Callable[[ReadNumber, object], Any]:
    def method(self: ReadNumber, other: object) -> Any:
        return self._compute(name, other, sys._getframe(1))

    return method


def _number_second(name: str) -> Callable[[ReadNumber, object], Any]:
    def method(self: ReadNumber, other: object) -> Any:
        return self._compute(name, other, sys._getframe(1), is_second=True)

    return method


for _name in (*_COMPUTED, *_READ):
    setattr(ReadNumber, f"__{_name}__", _number_first(_name))
    setattr(ReadNumber, f"__r{_name}__", _number_second(_name))
