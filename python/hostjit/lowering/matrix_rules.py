# SPDX-License-Identifier: Apache-2.0
"""Factorizations of small matrices, and what is solved with them: kernels of their own.

The libraries behind PyTorch take 5 to 25 us for the matrices of a controller, of which arithmetic
is one or two hundredths. What is larger, complex, or of sizes that only calls tell is left to them.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence

import torch
from torch.fx import Node

from hostjit import _C
from hostjit.kernels import DType
from hostjit.kernels.matrices.factorizations import (
    cholesky,
    determinant_of_lu,
    lu,
    signed_logarithm_of_lu,
)
from hostjit.kernels.matrices.layout import Layout
from hostjit.kernels.matrices.solves import solve_lower, solve_lu, solve_upper
from hostjit.kernels.matrices.writer import Matrix, Writer, write_function
from hostjit.kernels.operation import Value
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.devices import CPU
from hostjit.lowering.pointwise import named_arguments
from hostjit.lowering.registry import lowers
from hostjit.lowering.sizes import is_contiguous, shape_of, strides_of
from hostjit.lowering.types import dtype_name, is_plain

__all__: list[str] = []

_DTYPES = {torch.float32: DType.F32, torch.float64: DType.F64, torch.int32: DType.I32}
_MOST_ROWS = 32
# With more multiplications libraries are faster.
_MOST_WORK = 1 << 16
# A node, and how many of its last dims are those of one matrix, vector or number.
_Operand = tuple[Node, int]
# Writes what is done with one matrix of a batch: given a `Writer`, operands, results and buffers.
_Body = Callable[..., None]
_Rule = Callable[[LoweringContext, Node], bool]


def _lower(
    context: LoweringContext,
    node: Node,
    operation: str,
    operands: Sequence[_Operand],
    results: Sequence[int],
    body: _Body,
    *,
    columns: int,
    options: tuple[object, ...] = (),
    buffers: Sequence[tuple[torch.dtype, int]] = (),
) -> bool:
    """Lower a node to one kernel; tells whether it may be.

    Args:
        context: of the program.
        node: whose first result has the batch of all others.
        operation: begins the name of the kernel.
        operands: what it reads, square matrices first.
        results: how many of the last dims of each result are those of one matrix.
        body: writes the kernel.
        columns: how many columns are computed besides those of the first operand.
        options: what tells bodies of an operation apart, besides sizes and layouts.
        buffers: memory that one matrix needs besides, for all the same: types, and how many dims
            it has, each of as many elements as there are rows.
    """
    made = _tensors(node)
    size = operands[0][0].meta["val"].shape[-1]
    batch = made[0].shape[: made[0].dim() - results[0]]
    if size > _MOST_ROWS or math.prod(batch) * size * size * (size + columns) > _MOST_WORK:
        return False
    pairs = zip(made, results, strict=True)
    if any(tensor.shape[: tensor.dim() - core] != batch for tensor, core in pairs):
        return False  # what is made once serves several
    inputs = [_layout(operand.meta["val"], len(batch), core) for operand, core in operands]
    pairs = zip(made, results, strict=True)
    outputs = [_layout(tensor, len(batch), core) for tensor, core in pairs]
    extra = [torch.empty((size,) * core, dtype=dtype, device="meta") for dtype, core in buffers]
    outputs += [_layout(each, len(batch), each.dim()) for each in extra]
    sizes = [tuple(operand.meta["val"].shape) for operand, _ in operands]
    content = repr((sizes, inputs, outputs, options)).encode()
    name = f"{operation}_{hashlib.sha256(content).hexdigest()[:8]}"
    if name not in context.kernels:
        context.add_kernel(name, write_function(name, batch, inputs, outputs, body))
    values = _allocate(context, node)
    for each in extra:
        type_ = _C.TensorType(dtype_name(each.dtype), [*each.shape])
        values.append(context.create("allocate", {}, [type_]))
    fields = {"kernel": name, "inputs": [context.value(operand) for operand, _ in operands]}
    context.create("launch_kernel", {**fields, "outputs": values})
    return True


def _tensors(node: Node) -> list[torch.Tensor]:
    value = node.meta["val"]
    return [*value] if isinstance(value, (tuple, list)) else [value]


def _where_known(rule: _Rule) -> _Rule:
    """Leave nodes to ATen whose operands and results are not of sizes that are known.

    And those that are not on the CPU, or of other elements than real floats of one type.
    """

    @functools.wraps(rule)
    def lower(context: LoweringContext, node: Node) -> bool:
        operands = node.all_input_nodes
        tensors = [*_tensors(node), *(operand.meta["val"] for operand in operands)]
        return all(map(is_plain, operands)) and _are_known(tensors) and rule(context, node)

    return lower


def _are_known(tensors: Sequence[torch.Tensor]) -> bool:
    numbers = [x for tensor in tensors for x in (*shape_of(tensor), *strides_of(tensor))]
    if not all(isinstance(number, int) for number in numbers):
        return False
    if any(x.device != CPU or x.dtype not in _DTYPES or x.numel() == 0 for x in tensors):
        return False
    return len({tensor.dtype for tensor in tensors} - {torch.int32}) == 1


def _layout(tensor: torch.Tensor, batch: int, core: int) -> Layout:
    """Where elements are, the last `core` dims those of a matrix, in a batch of so many dims."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    strides = [0 if size == 1 else stride for size, stride in pairs]
    own = strides[: len(strides) - core]
    row, column = (*strides[len(strides) - core :], 0, 0)[:2]
    return Layout(_DTYPES[tensor.dtype], (*(0,) * (batch - len(own)), *own), row, column)


def _allocate(context: LoweringContext, node: Node) -> list[_C.Value]:
    """Reserve memory for the results of a node, and bind them."""
    if isinstance(node.meta["val"], torch.Tensor):
        return [context.allocate(node)]
    values = [context.new_buffer(tensor) for tensor in _tensors(node)]
    context.bind_all(node, values)
    return values


def _shape(node: Node) -> torch.Size:
    shape: torch.Size = node.meta["val"].shape
    return shape


def _is_transposed(node: Node) -> bool:
    """Whether ATen factorizes the transpose for a determinant: a contiguous matrix, seen by LAPACK.

    Backward passes are given that.
    """
    value = node.meta["val"]
    return is_contiguous(shape_of(value), strides_of(value))


def _copy(writer: Writer, source: Matrix, target: Matrix, rows: int, columns: int) -> None:
    def column(j: Value) -> None:
        writer.each(0, rows, lambda i: target.set(source.get(i, j), i, j))

    writer.each(0, columns, column)


def _factorize(
    writer: Writer, source: Matrix, made: Matrix, pivots: Matrix, info: Matrix, size: int
) -> None:
    _copy(writer, source, made, size, size)
    lu(writer, made, pivots, info, size)


def _identity(writer: Writer, target: Matrix, size: int) -> None:
    one, zero = (writer.emitter.constant(target.layout.dtype, number) for number in (1, 0))

    def column(j: Value) -> None:
        writer.each(0, size, lambda i: target.set(i.equals(j).where(one, zero), i, j))

    writer.each(0, size, column)


def _solve_by_cholesky(
    writer: Writer, lower: Matrix, sides: Matrix, size: int, columns: int
) -> None:
    """Solve for each column, in place, with a matrix that is `lower @ lower.T`."""

    def solve(j: Value) -> None:
        solve_lower(writer, lower, sides.column(j), size, unit=False)
        solve_upper(writer, lower.transposed, sides.column(j), size, unit=False)

    writer.each(0, columns, solve)


def _solve_all(
    writer: Writer,
    made: Matrix,
    pivots: Matrix,
    sides: Matrix,
    size: int,
    columns: int,
    *,
    transposes: bool,
) -> None:
    """Solve for each column, in place."""

    def solve(j: Value) -> None:
        solve_lu(writer, made, pivots, sides.column(j), size, transposes=transposes)

    writer.each(0, columns, solve)


@lowers("aten._linalg_solve_ex.default")
@_where_known
def lower_solve(context: LoweringContext, node: Node) -> bool:
    """_linalg_solve_ex(A, B, left=, check_errors=) -> (result, LU, pivots, info)."""
    arguments = named_arguments(node)
    matrix, right, left = arguments["A"], arguments["B"], arguments["left"]
    if arguments["check_errors"]:
        return False
    size, dims = _shape(matrix)[-1], len(_shape(right))
    is_vector = dims == 1 or (dims < len(_shape(matrix)) and _shape(right) == _shape(matrix)[:-1])
    columns = 1 if is_vector else _shape(right)[-1 if left else -2]

    def body(
        writer: Writer, a: Matrix, b: Matrix, x: Matrix, made: Matrix, pivots: Matrix, info: Matrix
    ) -> None:
        _factorize(writer, a, made, pivots, info, size)
        if not left:
            b, x = b.transposed, x.transposed
        _copy(writer, b, x, size, columns)
        _solve_all(writer, made, pivots, x, size, columns, transposes=not left)

    core = 1 if is_vector else 2
    operands, results = [(matrix, 2), (right, core)], (core, 2, 1, 0)
    return _lower(context, node, "solve", operands, results, body, columns=columns, options=(left,))


@lowers("aten.linalg_inv_ex.default")
@_where_known
def lower_inverse(context: LoweringContext, node: Node) -> bool:
    """linalg_inv_ex(A, check_errors=) -> (inverse, info)."""
    arguments = named_arguments(node)
    matrix = arguments["A"]
    if arguments["check_errors"]:
        return False
    size = _shape(matrix)[-1]

    def body(
        writer: Writer, a: Matrix, x: Matrix, info: Matrix, made: Matrix, pivots: Matrix
    ) -> None:
        _factorize(writer, a, made, pivots, info, size)
        _identity(writer, x, size)
        _solve_all(writer, made, pivots, x, size, size, transposes=False)

    return _lower(
        context,
        node,
        "inverse",
        [(matrix, 2)],
        (2, 0),
        body,
        columns=size,
        buffers=[(matrix.meta["val"].dtype, 2), (torch.int32, 1)],
    )


@lowers("aten._linalg_det.default")
@_where_known
def lower_determinant(context: LoweringContext, node: Node) -> bool:
    """_linalg_det(A) -> (result, LU, pivots)."""
    matrix = named_arguments(node)["A"]
    size, transposes = _shape(matrix)[-1], _is_transposed(matrix)

    def body(
        writer: Writer, a: Matrix, result: Matrix, made: Matrix, pivots: Matrix, info: Matrix
    ) -> None:
        _factorize(writer, a.transposed if transposes else a, made, pivots, info, size)
        result.set(determinant_of_lu(writer, made, pivots, size))

    return _lower(
        context,
        node,
        "determinant",
        [(matrix, 2)],
        (0, 2, 1),
        body,
        columns=0,
        options=(transposes,),
        buffers=[(torch.int32, 0)],
    )


@lowers("aten._linalg_slogdet.default")
@_where_known
def lower_signed_logarithm(context: LoweringContext, node: Node) -> bool:
    """_linalg_slogdet(A) -> (sign, logabsdet, LU, pivots): of what `_linalg_det` factorizes."""
    matrix = named_arguments(node)["A"]
    size, transposes = _shape(matrix)[-1], _is_transposed(matrix)

    def body(
        writer: Writer,
        a: Matrix,
        sign: Matrix,
        logarithm: Matrix,
        made: Matrix,
        pivots: Matrix,
        info: Matrix,
    ) -> None:
        _factorize(writer, a.transposed if transposes else a, made, pivots, info, size)
        found = signed_logarithm_of_lu(writer, made, pivots, size)
        sign.set(found[0])
        logarithm.set(found[1])

    return _lower(
        context,
        node,
        "slogdet",
        [(matrix, 2)],
        (0, 0, 2, 1),
        body,
        columns=0,
        options=(transposes,),
        buffers=[(torch.int32, 0)],
    )


@lowers("aten.linalg_lu_factor_ex.default")
@_where_known
def lower_lu_factor(context: LoweringContext, node: Node) -> bool:
    """linalg_lu_factor_ex(A, pivot=, check_errors=) -> (LU, pivots, info)."""
    arguments = named_arguments(node)
    matrix = arguments["A"]
    *_, rows, size = _shape(matrix)
    if arguments["check_errors"] or not arguments["pivot"] or rows != size:
        return False

    def body(writer: Writer, a: Matrix, made: Matrix, pivots: Matrix, info: Matrix) -> None:
        _factorize(writer, a, made, pivots, info, size)

    return _lower(context, node, "lu_factor", [(matrix, 2)], (2, 1, 0), body, columns=0)


@lowers("aten.linalg_lu_solve.default")
@_where_known
def lower_lu_solve(context: LoweringContext, node: Node) -> bool:
    """linalg_lu_solve(LU, pivots, B, left=, adjoint=) -> result."""
    arguments = named_arguments(node)
    matrix, pivots, right = (arguments[name] for name in ("LU", "pivots", "B"))
    size, left = _shape(matrix)[-1], arguments["left"]
    transposes = arguments["adjoint"] is left
    columns = _shape(right)[-1 if left else -2]

    def body(writer: Writer, made: Matrix, pivots: Matrix, b: Matrix, x: Matrix) -> None:
        if not left:
            b, x = b.transposed, x.transposed
        _copy(writer, b, x, size, columns)
        _solve_all(writer, made, pivots, x, size, columns, transposes=transposes)

    operands, options = [(matrix, 2), (pivots, 1), (right, 2)], (left, transposes)
    return _lower(context, node, "lu_solve", operands, (2,), body, columns=columns, options=options)


@lowers("aten.linalg_solve_triangular.default")
@_where_known
def lower_solve_triangular(context: LoweringContext, node: Node) -> bool:
    """linalg_solve_triangular(self, B, upper=, left=, unitriangular=) -> result."""
    arguments = named_arguments(node)
    matrix, right = arguments["self"], arguments["B"]
    left, unit = arguments["left"], arguments["unitriangular"]
    size, columns = _shape(matrix)[-1], _shape(right)[-1 if left else -2]
    is_upper = arguments["upper"] is left

    def body(writer: Writer, a: Matrix, b: Matrix, x: Matrix) -> None:
        if not left:
            a, b, x = a.transposed, b.transposed, x.transposed
        _copy(writer, b, x, size, columns)
        solve = solve_upper if is_upper else solve_lower
        writer.each(0, columns, lambda j: solve(writer, a, x.column(j), size, unit=unit))

    operands, options = [(matrix, 2), (right, 2)], (left, is_upper, unit)
    return _lower(
        context,
        node,
        "solve_triangular",
        operands,
        (2,),
        body,
        columns=columns,
        options=options,
    )


@lowers("aten.linalg_cholesky_ex.default")
@_where_known
def lower_cholesky(context: LoweringContext, node: Node) -> bool:
    """linalg_cholesky_ex(self, upper=, check_errors=) -> (L, info)."""
    arguments = named_arguments(node)
    matrix, is_upper = arguments["self"], arguments["upper"]
    if arguments["check_errors"]:
        return False
    size = _shape(matrix)[-1]

    def body(writer: Writer, a: Matrix, made: Matrix, info: Matrix) -> None:
        if is_upper:
            a, made = a.transposed, made.transposed
        zero = writer.emitter.constant(made.layout.dtype, 0)

        def copy_column(j: Value) -> None:
            writer.each(0, j, lambda i: made.set(zero, i, j))
            writer.each(j, size, lambda i: made.set(a.get(i, j), i, j))

        writer.each(0, size, copy_column)
        cholesky(writer, made, info, size)

    return _lower(
        context, node, "cholesky", [(matrix, 2)], (2, 0), body, columns=0, options=(is_upper,)
    )


@lowers("aten.cholesky_solve.default", "aten._cholesky_solve_helper.default")
@_where_known
def lower_cholesky_solve(context: LoweringContext, node: Node) -> bool:
    """cholesky_solve(self, input2, upper=) -> result."""
    arguments = named_arguments(node)
    right, is_upper = arguments["self"], arguments["upper"]
    matrix = arguments["input2"] if "input2" in arguments else arguments["A"]
    size, columns = _shape(matrix)[-1], _shape(right)[-1]

    def body(writer: Writer, factor: Matrix, b: Matrix, x: Matrix) -> None:
        _copy(writer, b, x, size, columns)
        _solve_by_cholesky(writer, factor.transposed if is_upper else factor, x, size, columns)

    operands = [(matrix, 2), (right, 2)]
    return _lower(
        context,
        node,
        "cholesky_solve",
        operands,
        (2,),
        body,
        columns=columns,
        options=(is_upper,),
    )


@lowers("aten.cholesky_inverse.default")
@_where_known
def lower_cholesky_inverse(context: LoweringContext, node: Node) -> bool:
    """cholesky_inverse(self, upper=) -> result."""
    arguments = named_arguments(node)
    matrix, is_upper = arguments["self"], arguments["upper"]
    size = _shape(matrix)[-1]

    def body(writer: Writer, factor: Matrix, x: Matrix) -> None:
        _identity(writer, x, size)
        _solve_by_cholesky(writer, factor.transposed if is_upper else factor, x, size, size)

    return _lower(
        context,
        node,
        "cholesky_inverse",
        [(matrix, 2)],
        (2,),
        body,
        columns=size,
        options=(is_upper,),
    )
