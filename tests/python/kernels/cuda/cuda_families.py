# SPDX-License-Identifier: Apache-2.0
"""Kernels of every family with operands and eager's results, for the emulated and the real GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from mcjit import TORCH_DTYPES

from hostjit.kernels import DType, KernelBuilder, PointwiseKernel
from hostjit.kernels.sizes import Size, Symbol, as_size

F32, F16, BF16, F64, I64, I32 = DType.F32, DType.F16, DType.BF16, DType.F64, DType.I64, DType.I32
Reference = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]


@dataclass
class Family:
    """A kernel; its inputs, which `tensors` makes; and what they give.

    `shift` moves tensors from where allocators put them by so many elements.
    """

    kernel: PointwiseKernel
    tensors: Callable[[], list[torch.Tensor]]
    reference: Reference
    shift: int = 0
    numbers: dict[str, int] = field(default_factory=dict)

    def expected(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        found = self.reference(*tensors)
        return list(found) if isinstance(found, tuple) else [found]

    def sizes(self) -> list[int]:
        return [self.numbers[symbol.name] for symbol in self.kernel.symbols()]


MARGIN = 16


def placed(tensor: torch.Tensor, shift: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy at `shift` elements behind an aligned place, and the memory around it."""
    size = tensor.numel() + 2 * MARGIN + 64
    storage = torch.empty(size, dtype=tensor.dtype, device=tensor.device)
    storage.view(torch.uint8).fill_(0xA5)
    first = -storage.data_ptr() % 64 // tensor.itemsize + MARGIN + shift
    inside = storage.as_strided(tensor.shape, tensor.stride(), first)
    inside.copy_(tensor)
    return inside, storage


def row_major(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = step * size
    return tuple(strides)


def random(shape: tuple[int, ...], dtype: DType) -> torch.Tensor:
    if dtype.is_float:
        return torch.randn(shape).to(TORCH_DTYPES[dtype])
    return torch.randint(-50, 50, shape).to(TORCH_DTYPES[dtype])


def softmax(
    name: str, shape: tuple[Size, Size], strides: tuple[Size, Size], dtype: DType = F32
) -> PointwiseKernel:
    """A softmax, and the largest element of each row."""
    builder = KernelBuilder(name, shape, 1)
    x = builder.load(builder.input(dtype), strides)
    largest = builder.reduce("max", x)
    power = builder.apply("exp", builder.apply("sub", x, largest))
    quotient = builder.apply("div", power, builder.reduce("sum", power))
    builder.store(builder.output(dtype), quotient, strides)
    builder.store(builder.output(dtype), largest, (1, 0))
    return builder.build()


def softmaxes() -> Iterator[Family]:
    for rows, columns in (
        *((1, 1), (1, 7), (3, 64), (130, 5), (5, 1000), (2, 1024), (3, 4099), (2, 20000)),
        *((9, 2048), (1, 40000)),
    ):
        for dtype in (F32, BF16):
            for across in (False, True):
                strides = (1, rows) if across else (columns, 1)
                name = f"softmax_{rows}_{columns}_{dtype.value}_{'across' if across else 'along'}"

                def tensors(
                    rows: int = rows, columns: int = columns, dtype: DType = dtype, a: bool = across
                ) -> list[torch.Tensor]:
                    return [
                        random((columns, rows), dtype).t() if a else random((rows, columns), dtype)
                    ]

                def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                    # As x is laid out, so is the result.
                    return x.t().contiguous().softmax(0).t(), x.amax(1)

                def along(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                    return x.softmax(1), x.amax(1)

                kernel = softmax(name, (rows, columns), strides, dtype)
                found = reference if across else along
                yield Family(kernel, tensors, found, shift=(rows + columns) % 3 == 0)


def symbolic() -> Iterator[Family]:
    m, n = as_size(Symbol("m", 0)), as_size(Symbol("n", 1))
    for number, (rows, columns) in enumerate(((5, 96), (7, 33), (0, 4), (1, 5000), (260, 1))):
        numbers = {"m": rows, "n": columns}

        def tensors(rows: int = rows, columns: int = columns) -> list[torch.Tensor]:
            return [torch.randn(rows, columns)]

        def rows_of(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.softmax(1), x.new_empty(0) if x.numel() == 0 else x.amax(1)

        yield Family(softmax(f"rows{number}", (m, n), (n, 1)), tensors, rows_of, 0, numbers)

        builder = KernelBuilder(f"columns{number}", (m, n), 1)
        x = builder.load(builder.input(F32), (1, m))
        builder.store(builder.output(F32), builder.reduce("sum", x), (1, 0))

        def across(rows: int = rows, columns: int = columns) -> list[torch.Tensor]:
            return [torch.randn(columns, rows).t()]

        yield Family(builder.build(), across, lambda x: x.sum(1), 0, numbers)

        builder = KernelBuilder(f"points{number}", (m, n))
        x = builder.load(builder.input(F32), (n, 1))
        y = builder.apply("mul", x, builder.cast(builder.index((0, 1)), F32))
        builder.store(builder.output(F32), builder.apply("tanh", y), (n, 1))

        def points(x: torch.Tensor) -> torch.Tensor:
            return (x * torch.arange(x.shape[1], device=x.device)).tanh()

        yield Family(builder.build(), tensors, points, 0, numbers)


def pointwise() -> Iterator[Family]:
    for dtype in (F32, F16, BF16, F64, I64, DType.U8):
        for count in (0, 1, 127, 4096, 70001):
            for shift in (0, 1):
                builder = KernelBuilder(f"add_{dtype.value}_{count}_{shift}", (count,))
                x, y = (builder.load(builder.input(dtype), (1,)) for _ in range(2))
                builder.store(builder.output(dtype), builder.apply("add", x, y), (1,))

                def tensors(count: int = count, dtype: DType = dtype) -> list[torch.Tensor]:
                    return [random((count,), dtype), random((count,), dtype)]

                yield Family(builder.build(), tensors, torch.add, shift)


def broadcasts() -> Iterator[Family]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), ()),
        ((64, 128), (128,)),
        ((64, 128), (64, 1)),
        ((7, 9, 33), (9, 1)),
        ((2, 3, 64, 32), (1, 3, 1, 1)),
    ]
    for number, (shape, other) in enumerate(shapes):
        for dtypes in ((F32, F32), (F32, BF16)):
            for shift in (0, 1):
                name = f"broadcast{number}_{dtypes[1].value}_{shift}"
                builder = KernelBuilder(name, shape)
                smaller = torch.empty(other).expand(shape).stride()
                x = builder.load(builder.input(dtypes[0]), row_major(shape))
                y = builder.load(builder.input(dtypes[1]), smaller)
                z = builder.apply("maximum", builder.apply("mul", x, y), x)
                builder.store(builder.output(F32), z, row_major(shape))
                positive = builder.apply("gt", z, y)
                builder.store(builder.output(DType.BOOL), positive, row_major(shape))

                def tensors(
                    shape: tuple[int, ...] = shape,
                    other: tuple[int, ...] = other,
                    dtypes: tuple[DType, DType] = dtypes,
                ) -> list[torch.Tensor]:
                    return [random(shape, dtypes[0]), random(other, dtypes[1])]

                def reference(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
                    z = torch.maximum(x * y, x)
                    return z, z > y

                yield Family(builder.build(), tensors, reference, shift)


def strided() -> Iterator[Family]:
    for tall, wide in ((64, 64), (33, 70), (128, 5), (1, 300)):
        for dtype in (F32, BF16):
            builder = KernelBuilder(f"transposed_{tall}_{wide}_{dtype.value}", (tall, wide))
            x = builder.load(builder.input(dtype), (wide, 1))
            y = builder.load(builder.input(dtype), (1, tall))
            builder.store(builder.output(dtype), builder.apply("sub", x, y), (wide, 1))

            def tensors(
                tall: int = tall, wide: int = wide, dtype: DType = dtype
            ) -> list[torch.Tensor]:
                return [random((tall, wide), dtype), random((wide, tall), dtype)]

            yield Family(builder.build(), tensors, lambda x, y: x - y.t())
    for number, (planes, tall, wide) in enumerate(((2, 40, 70), (3, 33, 32))):
        p, m, n = (as_size(Symbol(name, 1)) for name in "pmn")
        for sizes in ((planes, tall, wide), (p, m, n)):
            name = f"planes{number}_{'known' if sizes[0] == planes else 'open'}"
            builder = KernelBuilder(name, sizes)
            x = builder.load(builder.input(BF16), (sizes[1] * sizes[2], 1, sizes[1]))
            y = builder.load(builder.input(F32), (0, 0, 1))
            z = builder.apply("mul", x, y)
            step = sizes[1] * sizes[2]
            builder.store(builder.output(F32), z, (step, sizes[2], 1))
            builder.store(
                builder.output(DType.BOOL), builder.apply("gt", x, y), (step, sizes[2], 1)
            )

            def planes_of(
                shape: tuple[int, int, int] = (planes, wide, tall), wide: int = wide
            ) -> list[torch.Tensor]:
                return [random(shape, BF16), torch.randn(wide)]

            def turned(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
                x = x.transpose(1, 2).contiguous()
                return x * y, x > y

            numbers = {"p": planes, "m": tall, "n": wide}
            yield Family(builder.build(), planes_of, turned, 0, numbers)
    builder = KernelBuilder("backwards", (5, 64))
    x = builder.load(builder.input(F32), (128, -2), offset=127)
    builder.store(builder.output(F32), x, (64, 1))
    yield Family(
        builder.build(),
        lambda: [torch.randn(5, 128)],
        lambda x: x.flip(1)[:, ::2].contiguous(),
    )


def layer_norm(name: str, rows: int, columns: int, dtype: DType) -> PointwiseKernel:
    builder = KernelBuilder(name, (rows, columns), 1)
    x = builder.load(builder.input(dtype), (columns, 1))
    count = builder.cast(builder.size(columns), F32)
    distance = builder.apply("sub", x, builder.apply("div", builder.reduce("sum", x), count))
    squares = builder.reduce("sum", builder.apply("square", distance))
    variance = builder.apply("div", squares, count)
    scale = builder.apply("rsqrt", builder.apply("add", variance, builder.constant(F32, 1e-5)))
    weight, bias = (builder.load(builder.input(dtype), (0, 1)) for _ in range(2))
    scaled = builder.apply("mul", builder.apply("mul", distance, scale), weight)
    builder.store(builder.output(dtype), builder.apply("add", scaled, bias), (columns, 1))
    return builder.build()


def norms() -> Iterator[Family]:
    for rows, columns in ((4, 32), (300, 96), (3, 768), (2, 3001), (2, 8192), (1, 50000)):
        for dtype in (F32, BF16):
            kernel = layer_norm(f"layer_norm_{rows}_{columns}_{dtype.value}", rows, columns, dtype)

            def tensors(
                rows: int = rows, columns: int = columns, dtype: DType = dtype
            ) -> list[torch.Tensor]:
                shapes = [(rows, columns), (columns,), (columns,)]
                return [random(shape, dtype) for shape in shapes]

            def reference(x: torch.Tensor, *affine: torch.Tensor) -> torch.Tensor:
                return F.layer_norm(x, (x.shape[1],), *affine)

            yield Family(kernel, tensors, reference)
    # Over the first and the last of three dimensions, with a value per channel.
    for shape in ((4, 3, 64), (3, 5, 7), (40, 64, 9)):
        images, channels, points = shape
        builder = KernelBuilder(
            f"batch_{images}_{channels}_{points}", (channels, images, points), 2
        )
        strides = (points, channels * points, 1)
        x = builder.load(builder.input(F32), strides)
        count = builder.constant(F32, images * points)
        mean = builder.apply("div", builder.reduce("sum", x), count)
        scaled = builder.apply(
            "mul", builder.apply("sub", x, mean), builder.load(builder.input(F32), (1, 0, 0))
        )
        builder.store(builder.output(F32), scaled, strides)
        builder.store(builder.output(F32), mean, (1, 0, 0))

        def batch(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mean = x.mean((0, 2))
            return (x - mean[:, None]) * weight[:, None], mean

        def batch_tensors(shape: tuple[int, int, int] = shape) -> list[torch.Tensor]:
            return [torch.randn(shape), torch.randn(shape[1])]

        yield Family(builder.build(), batch_tensors, batch)


def reductions() -> Iterator[Family]:
    def reference(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total, product = x.sum(-1, dtype=x.dtype), x.prod(-1, dtype=x.dtype)
        return total, product, x.amax(-1), x.amin(-1)

    for dtype in (F32, F64, I64, I32, DType.I16, DType.U8):
        for rows, columns in ((3, 100), (2, 2500)):
            for across in (False, True):
                strides = (1, rows) if across else (columns, 1)
                place = "across" if across else "along"
                builder = KernelBuilder(
                    f"reduced_{dtype.value}_{columns}_{place}", (rows, columns), 1
                )
                x = builder.load(builder.input(dtype), strides)
                for name in ("sum", "prod", "max", "min"):
                    builder.store(builder.output(dtype), builder.reduce(name, x), (1, 0))

                def tensors(
                    shape: tuple[int, int] = (rows, columns),
                    dtype: DType = dtype,
                    across: bool = across,
                ) -> list[torch.Tensor]:
                    if dtype.is_float:
                        x = (1 + torch.randn(shape) / 100).to(TORCH_DTYPES[dtype])
                    else:
                        x = random(shape, dtype)
                    return [x.t().contiguous().t() if across else x]

                yield Family(builder.build(), tensors, reference)
    builder = KernelBuilder("nan_wins", (2, 200), 1)
    x = builder.load(builder.input(F32), (200, 1))
    for name in ("max", "min"):
        builder.store(builder.output(F32), builder.reduce(name, x), (1, 0))

    def with_nan() -> list[torch.Tensor]:
        x = torch.randn(2, 200)
        x[1, 77] = math.nan
        return [x]

    yield Family(builder.build(), with_nan, lambda x: (x.amax(1), x.amin(1)))


def gathers() -> Iterator[Family]:
    for columns in (1, 64, 70):
        builder = KernelBuilder(f"embedding_{columns}", (10, columns))
        table, indices = builder.input(F32), builder.input(I64)
        place = builder.bounded(builder.load(indices, (1, 0)), 50, "index out of range", wraps=True)
        row = builder.load(table, (0, 1), 0, ((place, columns),))
        builder.store(builder.output(F32), builder.apply("relu", row), (columns, 1))

        def tensors(columns: int = columns) -> list[torch.Tensor]:
            return [torch.randn(50, columns), torch.randint(-50, 50, (10,))]

        yield Family(builder.build(), tensors, lambda table, places: table[places].relu())
    builder = KernelBuilder("gather_rows", (6, 40), 1)
    table, indices = builder.input(F32), builder.input(I64)
    place = builder.bounded(builder.load(indices, (40, 1)), 90, "index out of range")
    found = builder.load(table, (90, 0), 0, ((place, 1),))
    builder.store(builder.output(F32), builder.reduce("sum", found), (1, 0))

    def gathered(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return table.gather(1, places).sum(1)

    yield Family(
        builder.build(),
        lambda: [torch.randn(6, 90), torch.randint(0, 90, (6, 40))],
        gathered,
    )


def casts() -> Iterator[Family]:
    """Numbers that fit every type, of each type to all types."""
    for source in DType:
        builder = KernelBuilder(f"casts_of_{source.value}", (1001,))
        x = builder.load(builder.input(source), (1,))
        for target in DType:
            builder.store(builder.output(target), builder.cast(x, target), (1,))

        def tensors(source: DType = source) -> list[torch.Tensor]:
            return [(torch.rand(1001) * 127).to(TORCH_DTYPES[source])]

        def reference(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(x.to(TORCH_DTYPES[target]) for target in DType)

        yield Family(builder.build(), tensors, reference)


def others() -> Iterator[Family]:
    builder = KernelBuilder("numbers", (3, 4))
    index = builder.index((4, 1), offset=2)
    builder.store(builder.output(I64), index, (4, 1))
    builder.store(builder.output(I32), builder.constant(I32, -7), (4, 1))
    builder.store(builder.output(F32), builder.constant(F32, -math.inf), (4, 1))
    yield Family(
        builder.build(),
        list,
        lambda: (
            torch.arange(12).view(3, 4) + 2,
            torch.full((3, 4), -7, dtype=torch.int32),
            torch.full((3, 4), -math.inf),
        ),
    )
    builder = KernelBuilder("double", (1000,))
    x = builder.load(builder.input(F32), (1,))
    builder.store(builder.output(F32, may_alias=True), builder.apply("add", x, x), (1,))
    yield Family(builder.build(), lambda: [torch.randn(1000)], lambda x: 2 * x)


KINDS = (
    *(pointwise, broadcasts, strided, softmaxes, norms),
    *(reductions, gathers, symbolic, casts, others),
)


def families() -> list[Family]:
    """All kernels of all families."""
    return [family for kind in KINDS for family in kind()]


def some_of_each() -> list[Family]:
    """Some kernels of each family."""
    kinds = [list(kind()) for kind in KINDS]
    return [family for kind in kinds for family in kind[:: -(-len(kind) // 6)]]
