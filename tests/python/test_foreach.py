# SPDX-License-Identifier: Apache-2.0
"""Operators on lists of tensors are taken apart, and compute what eager computes to the bit."""

import pytest
import torch

import hostjit
from hostjit.capturing.decompositions.foreach import for_each_tensor

aten = torch.ops.aten
# Functionalisation alone calls these, in place of those with an underscore; and one of matrices.
OTHERS = ("_foreach_zero", "_foreach_copy", "_foreach_mm")
LISTS = [
    (name, overload)
    for full in sorted(torch._C._dispatch_get_all_op_names())
    if full.startswith("aten::_foreach_") and not full.endswith("out")
    for name, _, overload in (full.removeprefix("aten::").partition("."),)
    if name not in OTHERS
]
LEFT = {
    "_foreach_powsum.Scalar",
    *(f"_foreach_addc{way}{end}.Tensor" for way in ("mul", "div") for end in ("", "_")),
}


def operator_of(name, overload):
    return getattr(getattr(aten, name), overload or "default")


def value_of(argument, lists):
    kind = str(argument.type)
    if "List[Tensor]" in kind:
        return lists.pop()
    if argument.name == "scalars" and kind == "Tensor":
        return torch.tensor([0.5, 2.0, 3.0])
    values = {"Tensor": torch.tensor(0.75), "bool": False, "List[number]": [0.5, 2.0, 3.0]}
    if kind in values:
        return values[kind]
    return argument.default_value if argument.has_default_value() else 0.7


def call_of(operator, seed):
    generator = torch.Generator().manual_seed(seed)
    lists = [
        [torch.rand(size, generator=generator) + 0.25 for size in ((3, 4), (5,), ())]
        for _ in range(3)
    ]
    arguments = operator._schema.arguments
    given = {x.name: value_of(x, lists) for x in arguments}
    by_name = {x.name: given.pop(x.name) for x in arguments if x.kwarg_only}
    return [*given.values()], by_name


def result_of(operator, args, kwargs):
    """What it returns, or the list that it writes."""
    copies = [
        [x.clone() for x in value]
        if type(value) is list and isinstance(value[0], torch.Tensor)
        else value
        for value in args
    ]
    found = operator(*copies, **kwargs)
    return copies[0] if found is None else found


@pytest.mark.filterwarnings("ignore:.*Expected scalars to be on CPU")
@pytest.mark.parametrize(("name", "overload"), LISTS)
def test_computes_what_eager_computes(name, overload):
    operator = operator_of(name, overload)

    def run(*args, **kwargs):
        return result_of(operator, args, kwargs)

    compiled = hostjit.compile(run)
    for seed in range(2):
        args, kwargs = call_of(operator, seed)
        expected = result_of(operator, args, kwargs)
        found = compiled(*args, **kwargs)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    full = f"{name}.{overload or 'default'}"
    assert (for_each_tensor(operator) is None) == (full in LEFT), full
    if full not in LEFT:
        assert "_foreach_" not in compiled.host_ir()


def test_lists_of_other_lengths_raise():
    def add(a, b):
        return torch._foreach_add([a, a], [b])

    compiled = hostjit.compile(add)
    x = torch.ones(3)
    with pytest.raises(RuntimeError, match="same number of tensors"):
        add(x, x)
    with pytest.raises(RuntimeError, match="same number of tensors"):
        compiled(x, x)


def test_writes_and_numbers_that_differ():
    def update(tensors, rate):
        torch._foreach_mul_(tensors, rate)
        torch._foreach_add_(tensors[:2], tensors[2:], alpha=rate)

    compiled = hostjit.compile(update)
    known, others = ([torch.full((4,), float(i)) for i in range(1, 5)] for _ in range(2))
    for rate in (0.5, 0.25, 0.125, 0.75):
        update(known, rate)
        compiled(others, rate)
        torch.testing.assert_close(known, others, rtol=0, atol=0)
    assert "_foreach_" not in compiled.host_ir()


def scaled(x):
    torch._foreach_mul_([x], 2.5)
    return x


def rooted(x):
    torch._foreach_sqrt_([x])
    return x


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("function", [scaled, rooted])
def test_results_that_do_not_fit_raise(function):
    compiled = hostjit.compile(function)
    for call in (function, compiled):
        with pytest.raises(RuntimeError, match="can't be cast"):
            call(torch.tensor([1, 4, 9]))
