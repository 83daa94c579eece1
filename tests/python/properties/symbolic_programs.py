# SPDX-License-Identifier: Apache-2.0
"""Random Host IR texts with symbols, for comparisons of the runtimes."""

from __future__ import annotations

import random
from dataclasses import dataclass

KERNELS = '''
kernel @twice """
define void @twice(ptr %x, ptr %out, i64 %count) {
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %from = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %from
  %w = fadd float %v, %v
  %to = getelementptr float, ptr %out, i64 %i
  store float %w, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

kernel @mean """
define void @mean(ptr %x, ptr %y, ptr %out, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %from = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %from
  %other = getelementptr float, ptr %y, i64 %i
  %u = load float, ptr %other
  %sum = fadd float %v, %u
  %w = fmul float %sum, 0.5
  %to = getelementptr float, ptr %out, i64 %i
  store float %w, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
'''


@dataclass
class Tensor:
    name: str
    dims: tuple[str, ...]  # numbers and symbols
    is_contiguous: bool = True


def type_of(dims: tuple[str, ...], strides: tuple[str, ...] | None = None) -> str:
    steps = f", strides=[{', '.join(strides)}]" if strides else ""
    return f"tensor<f32, [{', '.join(dims)}]{steps}, cpu>"


class SymbolicProgram:
    """Builds one program: `text` has two symbols, n and m."""

    def __init__(self, seed: int, num_steps: int) -> None:
        self.random = random.Random(seed)
        self.sizes = ["%n = size(source=%x, dim=0) : index", "%m = size(source=%y, dim=1) : index"]
        self.products: dict[tuple[str, ...], str] = {}
        self.body: list[str] = []
        self.num_names = 0
        inputs = [Tensor("x", ("n", "6")), Tensor("y", ("n", "m")), Tensor("w", ("6", "9"))]
        self.tensors = list(inputs)
        for _ in range(num_steps):
            self.random.choice(self.steps())()
        outputs = self.random.sample(self.tensors, 3)
        arguments = ", ".join(f"%{tensor.name}: {type_of(tensor.dims)}" for tensor in inputs)
        lines = [*self.sizes, *self.body, "return " + ", ".join(f"%{t.name}" for t in outputs)]
        self.text = f"program @p({arguments}) {{\n  " + "\n  ".join(lines) + "\n}\n" + KERNELS

    def steps(self) -> list[object]:
        return [
            self.twice,
            self.twice,
            self.mean,
            self.transpose,
            self.copy,
            self.broadcast,
            self.into_columns,
            self.concatenate,
            self.flatten,
            self.fill,
            self.multiply,
            self.multiply,
            self.operator,
            self.write_input,
        ]

    def new_name(self) -> str:
        self.num_names += 1
        return f"v{self.num_names}"

    def product(self, dims: tuple[str, ...]) -> str:
        """The name of the index value that is the product of dims."""
        key = tuple(sorted(dims))
        if key not in self.products:
            last = self.constant("1")
            for dim in key:
                name = self.new_name()
                factor = self.constant(dim) if dim.isdigit() else dim
                self.sizes.append(
                    f"%{name} = index_binary(operation=mul, lhs=%{last}, rhs=%{factor}) : index"
                )
                last = name
            self.products[key] = last
        return self.products[key]

    def constant(self, value: str) -> str:
        name = self.new_name()
        self.sizes.append(f"%{name} = index_constant(value={value}) : index")
        return name

    def pick(self, *, rank: int | None = None, contiguous: bool = True) -> Tensor:
        fitting = [
            tensor
            for tensor in self.tensors
            if (tensor.is_contiguous or not contiguous) and rank in (None, len(tensor.dims))
        ]
        return self.random.choice(fitting[-6:])

    def allocate(self, dims: tuple[str, ...]) -> Tensor:
        result = Tensor(self.new_name(), dims)
        self.body.append(f"%{result.name} = allocate() : {type_of(dims)}")
        self.tensors.append(result)
        return result

    def twice(self) -> None:
        source = self.pick()
        out = self.allocate(source.dims)
        self.body.append(
            f'launch_kernel(kernel="twice", inputs=[%{source.name}], outputs=[%{out.name}], '
            f"scalars=[%{self.product(source.dims)}], in_place=[0, 0])"
        )

    def mean(self) -> None:
        source = self.pick()
        others = [t for t in self.tensors if t.is_contiguous and t.dims == source.dims]
        other = self.random.choice(others)
        out = self.allocate(source.dims)
        self.body.append(
            f'launch_kernel(kernel="mean", inputs=[%{source.name}, %{other.name}], '
            f"outputs=[%{out.name}], grid=[{self.product(source.dims)}, 1, 1], "
            "block=[64, 1, 1], in_place=[0, 0, 1, 0])"
        )

    def transpose(self) -> None:
        source = self.pick(rank=2)
        rows, columns = source.dims
        result = Tensor(self.new_name(), (columns, rows), is_contiguous=False)
        self.body.append(
            f"%{result.name} = view(source=%{source.name}) : {type_of(result.dims, ('1', columns))}"
        )
        self.tensors.append(result)

    def copy(self) -> None:
        source = self.pick(contiguous=False)
        out = self.allocate(source.dims)
        self.body.append(f"copy(source=%{source.name}, out=%{out.name})")

    def broadcast(self) -> None:
        source = self.pick(contiguous=False)
        out = self.allocate((self.random.choice(["n", "m", "3"]), *source.dims))
        self.body.append(f"copy(source=%{source.name}, out=%{out.name})")

    def into_columns(self) -> None:
        rows = self.random.choice(["n", "m", "5"])
        out = self.allocate((rows, "11"))
        self.body.append(f"fill(value=1.5, out=%{out.name})")
        part = self.new_name()
        self.body.append(
            f"%{part} = view(source=%{out.name}, offset=2) : {type_of((rows, '6'), ('11', '1'))}"
        )
        source = self.tensors[0] if rows == "n" else None
        if source is None:
            self.body.append(f"fill(value=-2.25, out=%{part})")
        else:
            self.body.append(f"copy(source=%{source.name}, out=%{part})")

    def concatenate(self) -> None:
        first = self.pick(rank=2)
        others = [t for t in self.tensors if len(t.dims) == 2 and t.dims[1] == first.dims[1]]
        second = self.random.choice(others)
        rows = self.new_name()
        sizes = [
            dim if not dim.isdigit() else self.constant(dim)
            for dim in (first.dims[0], second.dims[0])
        ]
        self.sizes.append(
            f"%{rows} = index_binary(operation=add, lhs=%{sizes[0]}, rhs=%{sizes[1]}) : index"
        )
        out = self.allocate((rows, first.dims[1]))
        for source, offset in ((first, "0"), (second, self.product(first.dims))):
            part = self.new_name()
            self.body.append(
                f"%{part} = view(source=%{out.name}, offset={offset}) : {type_of(source.dims)}"
            )
            self.body.append(f"copy(source=%{source.name}, out=%{part})")

    def flatten(self) -> None:
        source = self.pick()
        result = Tensor(self.new_name(), (self.product(source.dims),))
        self.body.append(f"%{result.name} = view(source=%{source.name}) : {type_of(result.dims)}")
        self.tensors.append(result)

    def fill(self) -> None:
        dims = tuple(self.random.choice(["n", "m", "4", "1"]) for _ in range(2))
        out = self.allocate(dims)
        self.body.append(f"fill(value={self.random.choice(['0.0', '0.5'])}, out=%{out.name})")

    def multiply(self) -> None:
        lhs = self.pick(rank=2, contiguous=False)
        fitting = [t for t in self.tensors if len(t.dims) == 2 and t.dims[0] == lhs.dims[1]]
        if not fitting:
            return
        rhs = self.random.choice(fitting)
        out = self.allocate((lhs.dims[0], rhs.dims[1]))
        if self.random.random() < 0.5:
            self.body.append(f"matmul(lhs=%{lhs.name}, rhs=%{rhs.name}, out=%{out.name})")
            return
        bias = self.allocate((rhs.dims[1],))
        self.body.append(f"fill(value=0.25, out=%{bias.name})")
        self.body.append(
            f"addmm(lhs=%{lhs.name}, rhs=%{rhs.name}, bias=%{bias.name}, out=%{out.name}, "
            "beta=2.0, alpha=0.125)"
        )

    def operator(self) -> None:
        source = self.pick()
        result = Tensor(self.new_name(), source.dims)
        self.body.append(
            f'%{result.name} = aten_call(target="aten::tanh", inputs=[%{source.name}], '
            f"arguments=[$0]) : {type_of(result.dims)}"
        )
        self.tensors.append(result)

    def write_input(self) -> None:
        fitting = [t for t in self.tensors[3:] if t.dims == ("n", "m")]
        if fitting:
            self.body.append(f"copy(source=%{self.random.choice(fitting).name}, out=%y)")
