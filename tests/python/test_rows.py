# SPDX-License-Identifier: Apache-2.0
"""Programs with symbols: one compilation, a row for each combination of sizes."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hostjit import _C

RUNTIMES = ("jit", "evaluator")

# relu(x) @ w, the rows of another input below it, through memory that stays inside.
TEXT = """
program @p(
    %x: tensor<f32, [n, 16], cpu>,
    %w: tensor<f32, [16, 8], cpu>,
    %y: tensor<f32, [m, 8], cpu>) {
  %n = size(source=%x, dim=0) : index
  %m = size(source=%y, dim=0) : index
  %eight = index_constant(value=8) : index
  %rows = index_binary(operation=add, lhs=%n, rhs=%m) : index
  %begin = index_binary(operation=mul, lhs=%n, rhs=%eight) : index
  %a = allocate() : tensor<f32, [n, 16], cpu>
  launch_kernel(kernel="relu", inputs=[%x], outputs=[%a], scalars=[%n])
  %out = allocate() : tensor<f32, [rows, 8], cpu>
  %above = view(source=%out) : tensor<f32, [n, 8], cpu>
  matmul(lhs=%a, rhs=%w, out=%above)
  %below = view(source=%out, offset=begin) : tensor<f32, [m, 8], cpu>
  copy(source=%y, out=%below)
  return %out
}

kernel @relu \"\"\"
define void @relu(ptr %x, ptr %y, i64 %n) {
entry:
  %count = mul i64 %n, 16
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %from = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %from
  %positive = fcmp ogt float %v, 0.0
  %r = select i1 %positive, float %v, float 0.0
  %to = getelementptr float, ptr %y, i64 %i
  store float %r, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
\"\"\"
"""


def expected(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.relu(x) @ w, y])


def arguments(n: int, m: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(n, 16), torch.randn(16, 8), torch.randn(m, 8)


@pytest.fixture(scope="module")
def compiled() -> _C.CompiledProgram:
    return _C.CompiledProgram(_C.parse(TEXT))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_each_size_gives_what_eager_gives(compiled: _C.CompiledProgram, runtime: str) -> None:
    assert compiled.symbols == ["n", "m"]
    for n, m in [(3, 2), (5, 5), (1, 1), (3, 2), (0, 4), (4, 0), (0, 0), (700, 33), (2, 3), (3, 2)]:
        values = arguments(n, m)
        (out,) = compiled.run(values, runtime=runtime)
        torch.testing.assert_close(out, expected(*values))
        assert out.stride() == expected(*values).stride()


def test_a_program_without_symbols_has_one_row() -> None:
    program = _C.CompiledProgram(
        _C.parse("program @p(%x: tensor<f32, [4], cpu>) {\n  return %x\n}")
    )
    assert program.symbols == []
    assert program.num_rows == 1


def test_rows_are_kept_up_to_a_number() -> None:
    program = _C.CompiledProgram(_C.parse(TEXT))
    w, y = torch.randn(16, 8), torch.randn(1, 8)
    outputs = []
    for n in range(1, 1100):
        x = torch.randn(n % 1050 + 1, 16)
        (out,) = program.run([x, w, y])
        if n % 100 == 0:
            outputs.append((out, expected(x, w, y)))
    assert program.num_rows == 1024
    for found, wanted in outputs:  # outlive the rows that made them
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((torch.zeros(3), torch.zeros(16, 8), torch.zeros(1, 8)), "input %x is a Float tensor"),
        ((torch.zeros(3, 15), torch.zeros(16, 8), torch.zeros(1, 8)), "input %x is a Float tensor"),
        (
            (torch.zeros(16, 3).t(), torch.zeros(16, 8), torch.zeros(1, 8)),
            "with these sizes of the other inputs",
        ),
        (
            (torch.zeros(3, 16, dtype=torch.int64), torch.zeros(16, 8), torch.zeros(1, 8)),
            "input %x is a Long tensor",
        ),
    ],
)
def test_inputs_that_do_not_fit(
    compiled: _C.CompiledProgram, values: tuple[torch.Tensor, ...], message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        compiled.run(values)


def test_equal_symbols_are_equal_sizes() -> None:
    program = _C.CompiledProgram(
        _C.parse("""
program @p(%x: tensor<f32, [n], cpu>, %y: tensor<f32, [n, n], cpu>) {
  %n = size(source=%x, dim=0) : index
  %z = aten_call(target="aten::mv", inputs=[%y, %x], arguments=[$0, $1])
      : tensor<f32, [n], cpu>
  return %z
}""")
    )
    x, y = torch.randn(5), torch.randn(5, 5)
    torch.testing.assert_close(program.run([x, y])[0], y @ x)
    with pytest.raises(RuntimeError, match=r"input %y .* expected tensor<f32, \[5, 5\], cpu>"):
        program.run([x, torch.randn(5, 6)])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_sizes_that_the_program_can_not_have(runtime: str) -> None:
    program = _C.CompiledProgram(
        _C.parse("""
program @p(%x: tensor<f32, [n, 4], cpu>) {
  %n = size(source=%x, dim=0) : index
  %v = view(source=%x, offset=4) : tensor<f32, [4], cpu>
  %y = allocate() : tensor<f32, [4], cpu>
  copy(source=%v, out=%y)
  return %y
}""")
    )
    x = torch.randn(2, 4)
    torch.testing.assert_close(program.run([x], runtime=runtime)[0], x[1])
    with pytest.raises(RuntimeError, match=r"view: 'result' covers 4 elements .* within the 4"):
        program.run([torch.randn(1, 4)], runtime=runtime)
    torch.testing.assert_close(program.run([x], runtime=runtime)[0], x[1])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_error_inside_leaves_the_row_usable(runtime: str) -> None:
    program = _C.CompiledProgram(
        _C.parse("""
program @p(%x: tensor<i64, [n], cpu>, %y: tensor<f32, [m, 4], cpu>) {
  %n = size(source=%x, dim=0) : index
  %m = size(source=%y, dim=0) : index
  %a = allocate() : tensor<f32, [m, 4], cpu>
  copy(source=%y, out=%a)
  %z = aten_call(target="aten::index_select", inputs=[%a, %x], arguments=[$0, 0, $1])
      : tensor<f32, [n, 4], cpu>
  return %z
}""")
    )
    y = torch.randn(3, 4)
    for _ in range(2):
        with pytest.raises(IndexError) as raised:
            program.run([torch.tensor([0, 7]), y], runtime=runtime)
        assert "index_select" in raised.value.__notes__[0]
        x = torch.tensor([2, 0])
        torch.testing.assert_close(program.run([x, y], runtime=runtime)[0], y[x])


def test_builder_names_the_symbols() -> None:
    program = _C.Program("built")
    x = program.add_input("x", _C.TensorType("f32", ["n", 4]))
    builder = _C.Builder(program)
    n = builder.create("size", {"source": x, "dim": 0}, ["index"], result_names=["n"])
    assert n.name == "n"
    k = builder.create("index_constant", {"value": 2}, ["index"])
    v = builder.create("view", {"source": x, "offset": k.name}, [_C.TensorType("f32", ["n"], [4])])
    program.set_outputs([v, n])
    program.verify()
    assert [op.name for op in program.ops] == ["size", "index_constant", "view"]
    assert program.ops[2].offset == k.name
    assert _C.parse(str(program)) == program
    values = torch.randn(3, 4)
    found, count = _C.CompiledProgram(program).run([values])
    assert torch.equal(found, values[:, 2])
    assert count == 3
    with pytest.raises(RuntimeError, match="a value %n exists"):
        builder.create("size", {"source": x, "dim": 0}, ["index"], result_names=["n"])


class Owner:
    """Makes one specialization at the first miss and counts the misses."""

    has_original = False

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make
        self.misses: list[Any] = []

    def specialize(self, function: Any, args: Any, kwargs: Any) -> Any:
        self.misses.append([tuple(arg.shape) for arg in args])
        return self.make(args) if len(self.misses) == 1 else None


def function_of(
    compiled: _C.CompiledProgram,
    row_guard: Callable[[tuple[int, ...]], bool] | None = None,
    **options: Any,
) -> tuple[Any, Owner]:
    def make(args: Any) -> _C.Specialization:
        return _C.Specialization(
            args=args,
            kwargs={},
            program=compiled,
            bindings=[0, 1, 2],
            output=("output", 0),
            row_guard=row_guard,
            **options,
        )

    owner = Owner(make)
    return _C.CompiledFunction(expected, owner), owner


def test_numbers_are_bound_to_tensors_without_dims(compiled: _C.CompiledProgram) -> None:
    with pytest.raises(RuntimeError, match=r"a number is bound to %.*expected a float64 tensor"):
        _C.Specialization(
            args=arguments(3, 2),
            kwargs={},
            program=compiled,
            bindings=[("number", {"gain": 2.0}, "gain", None), 1, 2],
            output=("output", 0),
        )


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_specialization_answers_all_sizes(compiled: _C.CompiledProgram, runtime: str) -> None:
    function, owner = function_of(compiled, runtime=runtime)
    for n, m in [(3, 2), (3, 2), (4, 2), (3, 2), (0, 1), (50, 7), (4, 2)]:
        values = arguments(n, m)
        torch.testing.assert_close(function(*values), expected(*values))
    assert owner.misses == [[(3, 16), (16, 8), (2, 8)]]


def test_what_is_no_symbol_is_checked(compiled: _C.CompiledProgram) -> None:
    function, owner = function_of(compiled)
    x, w, y = arguments(3, 2)
    function(x, w, y)
    function(x.double(), w.double(), y.double())
    function(torch.randn(16, 3).t(), w, y)
    function(x, torch.randn(8, 16).t(), y)
    function(x.clone().requires_grad_(), w, y)
    assert len(owner.misses) == 5
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        function(torch.randn(3, 15), w, y)
    torch.testing.assert_close(function(x, w, y), expected(x, w, y))
    assert len(owner.misses) == 6


def test_the_guard_is_asked_once_for_each_row(compiled: _C.CompiledProgram) -> None:
    asked: list[tuple[int, ...]] = []

    def row_guard(sizes: tuple[int, ...]) -> bool:
        asked.append(sizes)
        return min(sizes) >= 2

    function, owner = function_of(compiled, row_guard)
    for n, m in [(3, 2), (1, 2), (3, 2), (1, 2), (2, 2), (3, 2)]:
        values = arguments(n, m)
        torch.testing.assert_close(function(*values), expected(*values))
    assert asked == [(3, 2), (1, 2), (2, 2)]
    assert len(owner.misses) == 3  # the first call, and twice the size that the guard refused


def test_a_guard_that_fails_refuses(compiled: _C.CompiledProgram) -> None:
    def row_guard(sizes: tuple[int, ...]) -> bool:
        raise ValueError(sizes)

    function, owner = function_of(compiled, row_guard)
    values = arguments(3, 2)
    torch.testing.assert_close(function(*values), expected(*values))
    assert len(owner.misses) == 1


def test_reused_outputs_are_those_of_the_same_row(compiled: _C.CompiledProgram) -> None:
    function, _ = function_of(compiled, reuse_outputs=True)
    small, large = arguments(3, 2), arguments(30, 20)
    first = function(*small)
    assert function(*small) is first
    other = function(*large)
    torch.testing.assert_close(other, expected(*large))
    again = function(*small)
    torch.testing.assert_close(again, expected(*small))
    torch.testing.assert_close(other, expected(*large))


def test_outputs_that_are_views_of_inputs() -> None:
    program = _C.CompiledProgram(
        _C.parse("""
program @p(%x: tensor<f32, [n, 4], cpu>) {
  %n = size(source=%x, dim=0) : index
  %t = view(source=%x) : tensor<f32, [4, n], strides=[1, 4], cpu>
  return %x, %t
}""")
    )
    for n in (3, 1, 5):
        x = torch.randn(n, 4)
        same, transposed = program.run([x])
        assert same is x
        assert transposed._base is x
        assert torch.equal(transposed, x.t())


def test_threads_call_rows_at_the_same_time(compiled: _C.CompiledProgram) -> None:
    function, _ = function_of(compiled)
    function(*arguments(3, 2))
    cases = [(arguments(n, m)) for n in (1, 3, 40, 300) for m in (2, 30)]
    results = [expected(*values) for values in cases]
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for i in range(150):
                index = (first * 3 + i) % len(cases)
                torch.testing.assert_close(function(*cases[index]), results[index])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_rows_go_with_the_function() -> None:
    compiled = _C.CompiledProgram(_C.parse(TEXT))

    class Guard:
        def __call__(self, sizes: tuple[int, ...]) -> bool:
            return True

    function, owner = function_of(compiled, Guard())
    function(*arguments(3, 2))
    del function, owner
    gc.collect()
    assert compiled.num_rows == 1


def test_the_memory_plan_says_what_a_row_decides(compiled: _C.CompiledProgram) -> None:
    plan = compiled.memory_plan()
    assert "per row" in plan
    assert "arena of 1 blocks; bytes and offsets are decided per row" in plan
    assert "arena 640 bytes, lower bound 640 bytes" in compiled.memory_plan([10, 3])
    row = compiled.row_program([10, 3])
    row.verify()
    assert str(row.inputs[0].type) == "tensor<f32, [10, 16], cpu>"
    with pytest.raises(RuntimeError, match="program 'p' has 2 symbols, got 1 sizes"):
        compiled.row_program([10])


def test_rows_go_while_other_threads_call() -> None:
    """More sizes than rows are kept, in calls that let other threads run."""
    compiled = _C.CompiledProgram(
        _C.parse("""
program @p(%x: tensor<f32, [n, 4], cpu>) {
  %n = size(source=%x, dim=0) : index
  %a = allocate() : tensor<f32, [n, 4], cpu>
  copy(source=%x, out=%a)
  %y = aten_call(target="aten::neg", inputs=[%a], arguments=[$0]) : tensor<f32, [n, 4], cpu>
  return %y
}""")
    )
    failures: list[int] = []

    def work(first: int) -> None:
        for i in range(900):
            n = (first * 700 + i) % 2500 + 1
            x = torch.full((n, 4), float(n))
            (y,) = compiled.run([x])
            if y.shape != x.shape or y[-1, -1].item() != -n:
                failures.append(n)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert compiled.num_rows == 1024
