# SPDX-License-Identifier: Apache-2.0
"""Host IR from Python: built, printed, parsed, inspected and run by both runtimes."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import hostjit
from hostjit import ir

KERNEL = """
define void @twice(ptr %in, ptr %out) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %in, i64 %i
  %x = load float, ptr %from
  %y = fadd float %x, %x
  %to = getelementptr float, ptr %out, i64 %i
  store float %y, ptr %to
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, 6
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def build() -> ir.Program:
    program = ir.Program("example")
    builder = ir.Builder(program)
    x = program.add_input("x", ir.TensorType("f32", [2, 4]))
    w = program.add_input("w", ir.TensorType("f32", [3, 4]))
    hidden = builder.create("allocate", {}, [ir.TensorType("f32", [2, 3])])
    builder.create("linear", {"input": x, "weight": w, "out": hidden}, location="model.py:3")
    doubled = builder.create("allocate", {}, [ir.TensorType("f32", [2, 3])])
    program.add_kernel("twice", KERNEL)
    builder.create("launch_kernel", {"kernel": "twice", "inputs": [hidden], "outputs": [doubled]})
    total = builder.create(
        "aten_call",
        {
            "target": "aten::sum.dim_IntList",
            "inputs": [doubled],
            "arguments": [ir.Operand(0), [1], False, None],
        },
        [ir.TensorType("f32", [2])],
    )
    row = builder.create("view", {"source": doubled, "offset": 3}, [ir.TensorType("f32", [3])])
    program.set_outputs([total, row])
    return program


def test_text_reads_back() -> None:
    program = build()
    program.verify()
    again = ir.parse(str(program))
    assert again == program
    assert str(again) == str(program)


def test_inspection() -> None:
    program = build()
    assert [op.name for op in program.ops] == [
        *("allocate", "linear", "allocate", "launch_kernel", "aten_call", "view")
    ]
    linear = program.ops[1]
    assert linear.location == "model.py:3"
    assert linear.weight == program.inputs[1]
    assert linear.bias is None
    assert linear.out.type == ir.TensorType("f32", [2, 3])
    assert program.ops[4].fields["arguments"][1:] == [[1], False, None]
    assert list(program.kernels) == ["twice"]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_runs(runtime: str) -> None:
    torch.manual_seed(0)
    compiled = ir.CompiledProgram(build())
    x, w = torch.randn(2, 4), torch.randn(3, 4)
    total, row = compiled.run([x, w], runtime)
    expected = 2 * x @ w.t()
    assert_close(total, expected.sum(1))
    assert_close(row, expected[1])
    assert compiled.program.arena_bytes >= 0
    fast = hostjit.compile(str(build()), runtime=runtime)
    assert_close(fast(x, w)[0], expected.sum(1))
    assert len(fast.specializations) == 1


def test_inputs_are_checked() -> None:
    fast = hostjit.compile(build())
    x, w = torch.randn(2, 4), torch.randn(3, 4)
    fast(x, w)
    with pytest.raises(hostjit.Error, match="takes 2 inputs, got 1"):
        fast(x)
    for bad, message in [
        (torch.randn(2, 5), r"input %x is a Float tensor of sizes \[2, 5\]"),
        (torch.randn(2, 4).double(), "a Double tensor"),
        (torch.randn(4, 2).t(), r"strides \[1, 2\]"),
        (torch.randn(2, 4).to_sparse(), "layout Sparse"),
        (3, "input %x is a int, expected tensor<f32, "),
    ]:
        with pytest.raises(hostjit.Error, match=message):
            fast(bad, w)
    assert_close(fast(x, w)[0], (2 * x @ w.t()).sum(1))


def test_building_errors_name_op_and_operand() -> None:
    program = ir.Program("wrong")
    builder = ir.Builder(program)
    x = program.add_input("x", ir.TensorType("f32", [2, 4]))
    out = builder.create("allocate", {}, [ir.TensorType("f32", [2, 3])])
    with pytest.raises(hostjit.Error, match="matmul: 'rhs'"):
        builder.create("matmul", {"lhs": x, "rhs": x, "out": out})
    with pytest.raises(hostjit.Error, match="matmul: 'rhs' is missing"):
        builder.create("matmul", {"lhs": x, "out": out})
    with pytest.raises(hostjit.Error, match="unknown field 'left'"):
        builder.create("matmul", {"left": x, "lhs": x, "rhs": x, "out": out})
    with pytest.raises(hostjit.Error, match="unknown op 'matmull', expected one of: allocate"):
        builder.create("matmull", {})
    other = ir.Program("other").add_input("y", ir.TensorType("f32", [1]))
    with pytest.raises(hostjit.Error, match="%y of another program"):
        builder.create("copy", {"source": other, "out": out})
    with pytest.raises(hostjit.Error, match="line 1, column"):
        ir.parse("nonsense")


def test_scalars() -> None:
    program = ir.parse("""
program @indices(%n: index, %x: tensor<f32, [4, 6], cpu>) {
  %d = size(source=%x, dim=1) : index
  %s = index_binary(operation=add, lhs=%n, rhs=%d) : index
  %q = index_binary(operation=floordiv, lhs=%s, rhs=%n) : index
  return %s, %q
}
""")
    compiled = ir.CompiledProgram(program)
    for runtime in ("jit", "evaluator"):
        assert compiled.run([-4, torch.ones(4, 6)], runtime) == [2, -1]
        with pytest.raises(hostjit.Error, match="zero"):
            compiled.run([0, torch.ones(4, 6)], runtime)
        assert compiled.run([2, torch.ones(4, 6)], runtime) == [8, 4]
    assert hostjit.compile(program)(3, torch.ones(4, 6)) == (9, 3)


def test_builders_of_regions_append_to_them() -> None:
    program = ir.Program("power")
    x = program.add_input("x", ir.TensorType("f32", [2]))
    builder = ir.Builder(program)
    begin, end = (
        builder.create("index_constant", {"value": number}, ["index"]) for number in (0, 3)
    )
    y = builder.create("allocate", {}, [ir.TensorType("f32", [2])])
    builder.create("copy", {"source": x, "out": y})
    builder.create("for", {"begin": begin, "end": end}, ["index"])
    body = builder.regions()["body"]
    call = {"target": "aten::mul_.Tensor", "inputs": [x], "mutated": [y]}
    body.create(
        "aten_call",
        {**call, "arguments": [ir.Operand(1), ir.Operand(0)], "aliases": [1]},
        [ir.TensorType("f32", [2])],
    )
    program.set_outputs([y])
    program.verify()
    loop = program.ops[-1]
    assert [op.name for op in loop.body] == ["aten_call"]
    result = hostjit.compile(program)(torch.tensor([2.0, 3.0]))
    assert result.tolist() == [16.0, 81.0]


def test_a_builder_without_ops_has_no_regions() -> None:
    with pytest.raises(hostjit.Error, match="no op was created yet"):
        ir.Builder(ir.Program("empty")).regions()
