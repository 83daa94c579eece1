# SPDX-License-Identifier: Apache-2.0
"""What a program holds by reference may change in place, in ways that no dict tells of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit


class Scaled(nn.Module):
    """One parameter and one buffer of so many dims."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(sizes, generator=generator))
        self.register_buffer("shift", torch.randn(sizes, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.weight + self.shift) * 2


def other_memory(module: Scaled) -> None:
    module.weight.data = module.weight.detach() + 1


def other_strides(module: Scaled) -> None:
    module.weight.data = (module.weight.detach() - 1).transpose(0, 1).contiguous().transpose(0, 1)


def transposed_in_place(module: Scaled) -> None:
    module.weight.detach_().t_()
    module.weight.requires_grad_()


def other_dtype(module: Scaled) -> None:
    module.shift.data = module.shift.double() / 3


def other_storage(module: Scaled) -> None:
    module.shift.set_(torch.arange(16.0).reshape(4, 4))


def other_offset(module: Scaled) -> None:
    memory = torch.arange(40.0)
    module.shift.set_(memory.untyped_storage(), 3, (4, 4), (4, 1))


def moved_in_storage(module: Scaled) -> None:
    module.shift.set_(torch.arange(40.0).untyped_storage(), 0, (4, 4), (4, 1))
    module(torch.ones(4, 4))
    module.shift.as_strided_((4, 4), (4, 1), 7)


def larger_storage(module: Scaled) -> None:
    module.shift.untyped_storage().resize_(1 << 20)


def swapped(module: Scaled) -> None:
    # As torch.utils.swap_tensors, which refuses tensors that Dynamo refers to weakly.
    torch._C._swap_tensor_impl(module.shift, torch.full((4, 4), 0.25))


def frozen(module: Scaled) -> None:
    module.weight.requires_grad_(False)


def no_leaf(module: Scaled) -> None:
    module.shift.mul_(module.weight)


def in_place(module: Scaled) -> None:
    with torch.no_grad():
        module.weight.neg_()


CHANGES = [
    other_memory,
    other_strides,
    transposed_in_place,
    other_dtype,
    other_storage,
    other_offset,
    moved_in_storage,
    larger_storage,
    swapped,
    frozen,
    no_leaf,
    in_place,
]


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_change_is_seen(change: Callable[[Scaled], None], grad: bool) -> None:
    eager, module = Scaled((4, 4)), Scaled((4, 4))
    fast = hostjit.compile(module)
    x = torch.linspace(-2, 2, 16).reshape(4, 4)
    for step in range(3):
        for _ in range(3):
            with torch.set_grad_enabled(grad):
                expected, found = eager(x), fast(x)
            assert_close(found, expected, rtol=0, atol=1e-6)
            assert found.requires_grad == expected.requires_grad
            assert found.dtype == expected.dtype
        if step == 0:
            change(eager)
            change(module)
        else:
            in_place(eager)
            in_place(module)


def test_tensor_of_many_dims_is_seen_to_change() -> None:
    eager, module = Scaled((2, 1, 2, 1, 2, 1, 2)), Scaled((2, 1, 2, 1, 2, 1, 2))
    fast = hostjit.compile(module)
    x = torch.ones(2, 1, 2, 1, 2, 1, 2)
    with torch.no_grad():
        for _ in range(3):
            assert_close(fast(x), eager(x))
        for changed in (eager, module):
            changed.shift.transpose_(0, 2)
        for _ in range(3):
            assert_close(fast(x), eager(x))


def test_view_of_what_needs_a_gradient() -> None:
    base = torch.zeros(4, 4)

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("view", base[1:3])

        def forward(self, x: Tensor) -> Tensor:
            return x + self.view

    fast = hostjit.compile(Reads())
    x = torch.ones(2, 4)
    for _ in range(3):
        assert not fast(x).requires_grad
    base.mul_(torch.ones((), requires_grad=True))
    for _ in range(3):
        assert fast(x).requires_grad


def test_released_memory_is_an_error() -> None:
    module = Scaled((4, 4))
    fast = hostjit.compile(module)
    x = torch.ones(4, 4)
    with torch.no_grad():
        for _ in range(3):
            fast(x)
        module.shift.untyped_storage().resize_(0)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="its storage was resized"):
                fast(x)
