# SPDX-License-Identifier: Apache-2.0
"""What a file has, what it is given at loading, and what can't be saved."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest
import saved_cases
import torch
from torch import Tensor, nn

import hostjit
from hostjit import _C

SCALE = (2.0,)  # in a tuple: compiled for its value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved.hostjit"


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


X = torch.ones(1, 3)


def saved(target: Any, path: Path, *args: Any, **options: Any) -> Any:
    compiled = hostjit.compile(target, fallback=False, **options)
    result = compiled(*args)
    hostjit.save(compiled, path)
    return result


def test_parameters_are_tensors_of_the_loaded_function(path: Path) -> None:
    module = model()
    expected = saved(module, path, X)
    loaded = hostjit.load(path)
    assert set(loaded.parameters) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    torch.testing.assert_close(loaded(X), expected, rtol=0, atol=0)
    other = model()
    for name, tensor in other.state_dict().items():
        loaded.parameters[name].copy_(tensor)
    torch.testing.assert_close(loaded(X), other(X))
    torch.testing.assert_close(module(X), expected)  # has its own


def test_without_constants_parameters_are_given(path: Path) -> None:
    module = model()
    compiled = hostjit.compile(module)
    expected = compiled(X)
    hostjit.save(compiled, path, constants=False)
    text = r"saved without its parameters: give '0\.weight', '0\.bias', '2\.weight', '2\.bias' as"
    with pytest.raises(hostjit.Error, match=text):
        hostjit.load(path)
    for given in (module, module.state_dict(), dict(module.named_parameters())):
        loaded = hostjit.load(path, parameters=given)
        torch.testing.assert_close(loaded(X), expected, rtol=0, atol=0)
    other = model()
    loaded = hostjit.load(path, parameters=other)
    torch.testing.assert_close(loaded(X), other(X))
    other[0].weight.mul_(2)  # by reference
    torch.testing.assert_close(loaded(X), other(X))
    loaded = hostjit.load(path, parameters=other.state_dict())
    other[0].weight.mul_(2)
    torch.testing.assert_close(loaded(X), other(X))


def test_constants_of_the_code_are_always_saved(path: Path) -> None:
    weight = torch.ones(3)

    def function(x: Tensor) -> Tensor:
        return x * weight + torch.tensor([1.0, 2.0, 3.0])

    compiled = hostjit.compile(function)
    expected = compiled(X)
    hostjit.save(compiled, path, constants=False)
    loaded = hostjit.load(path, parameters={"weight": weight})
    torch.testing.assert_close(loaded(X), expected)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: t.double(), "has dtype torch.float64, the saved program takes torch.float32"),
        (lambda t: t[:1], r"has sizes \(1, 3\), the saved program takes \(4, 3\)"),
        (
            lambda t: t.t().contiguous().t(),
            r"has strides \(1, 4\), the saved program takes \(3, 1\)",
        ),
    ],
)
def test_parameters_have_to_fit(change: Any, text: str, path: Path) -> None:
    module = model()
    saved(module, path, X)
    given = {"0.weight": change(module[0].weight.detach())}
    with pytest.raises(hostjit.Error, match=f"parameter '0.weight' {text}"):
        hostjit.load(path, parameters=given)


def test_one_memory_stays_one(path: Path) -> None:
    base = torch.zeros(4)
    first, second = base[:1], base[2:]

    saved(lambda x: (base + first, second * x), path, torch.ones(2))
    loaded = hostjit.load(path)
    assert loaded.parameters["first"].untyped_storage()._cdata == (
        loaded.parameters["base"].untyped_storage()._cdata
    )
    with pytest.raises(hostjit.Error, match=r"'base', 'first', 'second' share memory with what"):
        hostjit.load(path, parameters={"base": base})
    hostjit.load(path, parameters={"base": base, "first": first, "second": second})


def test_a_call_without_a_program(path: Path) -> None:
    saved(model(), path, X)
    loaded = hostjit.load(path)
    with pytest.raises(hostjit.Error) as caught:
        loaded(torch.ones(2, 3, dtype=torch.float64), flag=True)
    assert str(caught.value) == (
        "'Sequential' was loaded without its Python code, and has no program for this call:\n"
        "  (float64[2, 3], flag=True), gradients disabled\n"
        "It has one for\n"
        "  (float32[1, 3]), gradients disabled"
    )
    with torch.enable_grad(), pytest.raises(hostjit.Error, match="gradients enabled"):
        loaded(X)
    with pytest.raises(hostjit.Error, match="can't be described"):
        loaded(object())
    assert loaded.signatures == ["(float32[1, 3]), gradients disabled"]


def test_a_target_answers_other_calls(path: Path) -> None:
    module = model()
    saved(module, path, X)
    for target in (module, hostjit.compile(module)):
        loaded = hostjit.load(path, target=target)
        assert loaded.parameters["0.weight"] is module[0].weight
        before = len(loaded.specializations)
        loaded(X)
        assert len(loaded.specializations) == before
        torch.testing.assert_close(loaded(torch.ones(2, 3)), module(torch.ones(2, 3)))
        assert len(loaded.specializations) == before + 1
    with pytest.raises(TypeError, match="parameters or a target"):
        hostjit.load(path, target=module, parameters=module)


def test_a_loaded_function_is_saved_again(path: Path) -> None:
    expected = saved(model(), path, X)
    hostjit.save(hostjit.load(path), path)
    loaded = hostjit.load(path)
    assert set(loaded.parameters) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert loaded.recompiled == ""
    torch.testing.assert_close(loaded(X), expected, rtol=0, atol=0)
    assert "linear" in loaded.host_ir()
    assert loaded.profile(X, calls=2).entries
    with pytest.raises(hostjit.Error, match="loaded from a file"):
        hostjit.compile(loaded)


def test_arguments_that_must_lack_an_attribute(path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return x * 3 if hasattr(x, "marked") else x * 2

    saved(function, path, X)
    for _ in range(2):
        loaded = hostjit.load(path)
        hostjit.save(loaded, path)
        assert torch.equal(loaded(X), X * 2)
        marked = X.clone()
        marked.marked = True  # type: ignore[attr-defined]
        with pytest.raises(hostjit.Error):
            loaded(marked)


def test_code_may_be_left_alone(path: Path) -> None:
    expected = saved(model(), path, X)
    loaded = hostjit.load(path, recompile=True)
    assert loaded.recompiled == "it was asked for"
    torch.testing.assert_close(loaded(X), expected, rtol=0, atol=0)


def test_classes_are_named_by_the_caller(path: Path) -> None:
    case = saved_cases.make("classes")
    compiled = hostjit.compile(case.target)
    for args, kwargs in case.calls:
        compiled(*args, **kwargs)
    hostjit.save(compiled, path)
    with pytest.raises(hostjit.Error, match=r"the class 'saved_cases:.*give it as classes="):
        hostjit.load(path, classes=saved_cases.CLASSES[:1])
    hostjit.load(path, classes=saved_cases.CLASSES)


def test_what_was_read_is_a_constant_of_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = saved(lambda x: x * SCALE[0], path, X)
    monkeypatch.setitem(globals(), "SCALE", (3.0,))
    torch.testing.assert_close(hostjit.load(path)(X), expected)


def test_what_changed_is_not_saved(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = hostjit.compile(lambda x: x * SCALE[0])
    compiled(X)
    monkeypatch.setitem(globals(), "SCALE", (5.0,))
    with pytest.raises(
        hostjit.Error, match=r"\(float32\[1, 3\]\), gradients disabled: something that"
    ):
        hostjit.save(compiled, path)
    assert not path.exists()
    compiled(X)  # another specialization of the same signature
    assert len(compiled.specializations) == 2
    hostjit.save(compiled, path)
    loaded = hostjit.load(path)
    assert len(loaded.signatures) == 1
    torch.testing.assert_close(loaded(X), X * 5)


def test_what_changed_and_is_the_same_is_saved(path: Path) -> None:
    module = model()
    compiled = hostjit.compile(module)
    compiled(X)
    module.load_state_dict(model().state_dict())
    module.train().eval().train()
    module[0].weight = nn.Parameter(torch.ones(4, 3))
    hostjit.save(compiled, path)
    torch.testing.assert_close(hostjit.load(path)(X), module(X))


def test_buffers_are_what_they_are_when_it_is_saved(path: Path) -> None:
    norm = nn.BatchNorm1d(3)
    compiled = hostjit.compile(norm)
    x = torch.randn(4, 3)
    compiled(x)
    hostjit.save(compiled, path)
    loaded = hostjit.load(path)
    for _ in range(2):
        torch.testing.assert_close(loaded(x), norm(x))
    torch.testing.assert_close(loaded.parameters["running_mean"], norm.running_mean)
    assert loaded.parameters["num_batches_tracked"].item() == 3


def test_host_ir_programs(path: Path) -> None:
    text = """
program @scale(%x: tensor<f32, [4], cpu>, %n: index) {
  %y = allocate() : tensor<f32, [4], cpu>
  copy(source=%x, out=%y)
  return %y
}
"""
    compiled = hostjit.compile(text)
    hostjit.save(compiled, path)  # its types are its signature
    loaded = hostjit.load(path)
    x = torch.randn(4)
    torch.testing.assert_close(loaded(x, 3), x)
    with pytest.raises(hostjit.Error, match="expected tensor<f32, "):
        loaded(x.double(), 3)
    hostjit.save(loaded, path)
    assert loaded.recompiled == ""


def test_second_derivatives_are_an_error(path: Path) -> None:
    with torch.enable_grad():
        x = torch.randn(3, requires_grad=True)
        saved(lambda x: x.tanh(), path, x)
        loaded = hostjit.load(path)
        (first,) = torch.autograd.grad(loaded(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match=r"derivative"):
            first.sum().backward()


def test_a_loaded_function_in_compiled_code(path: Path) -> None:
    expected = saved(model(), path, X)
    loaded = hostjit.load(path)
    torch.testing.assert_close(
        torch.compile(lambda x: loaded(x) + 1, backend="eager")(X), expected + 1
    )


class Holder:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.count += 1
        return x * 2


class Custom:
    pass


@pytest.mark.parametrize(
    ("target", "args", "text"),
    [
        (Holder(), (X,), "its calls change what objects of this process keep"),
        (lambda x: x.to_sparse(), (X,), "which no file can hold"),
        (
            lambda x, o: x + 1,
            (X, Custom()),
            "argument 1 is compared with an object: a Custom means",
        ),
        (lambda x: (x + 1, functools), (X,), "an object that was there before: a module"),
        (lambda x, f: f(x), (X, torch.sin), "argument 1 is compared with an object"),
    ],
)
def test_what_can_not_be_saved(target: Any, args: Any, text: str, path: Path) -> None:
    compiled = hostjit.compile(target)
    for _ in range(2):
        compiled(*args)
    with pytest.raises(hostjit.Error, match=text):
        hostjit.save(compiled, path)
    assert list(path.parent.iterdir()) == []


def test_gradients_that_are_switched_off_inside(path: Path) -> None:
    module = model()
    with torch.enable_grad():
        expected = saved(torch.no_grad()(lambda x: module(x)), path, X)
        result = hostjit.load(path)(X)
        torch.testing.assert_close(result, expected)
        assert not result.requires_grad

        def in_part(x: Tensor) -> Tensor:
            with torch.no_grad():
                y = module(x)
            return module(x) + y

        expected = saved(in_part, path, X)
        loaded = hostjit.load(path)
        torch.testing.assert_close(loaded(X), expected)
        expected.sum().backward()
        loaded(X).sum().backward()
        for name, parameter in module.named_parameters(prefix="module"):
            torch.testing.assert_close(loaded.parameters[name].grad, parameter.grad)


def test_sizes_as_arguments(path: Path) -> None:
    expected = saved(lambda x, size: x.expand(size) + 1, path, X, torch.Size((4, 3)))
    torch.testing.assert_close(hostjit.load(path)(X, torch.Size((4, 3))), expected)
    with pytest.raises(hostjit.Error, match=r"Size\(4, 3\)\), gradients"):
        hostjit.load(path)(X, (4, 3))


def test_nothing_is_compiled(path: Path) -> None:
    with pytest.raises(hostjit.Error, match="'Sequential' can't be saved: nothing is compiled yet"):
        hostjit.save(hostjit.compile(model()), path)
    with pytest.raises(TypeError, match="takes a compiled function, got Sequential"):
        hostjit.save(model(), path)  # type: ignore[arg-type]


@pytest.mark.parametrize("language", ["shared_library", "cuda_function"])
def test_kernels_that_are_elsewhere(language: str, path: Path) -> None:
    program = _C.Program("elsewhere")
    if language == "shared_library":
        program.add_kernel("k", "/lib/libelsewhere.so", language, "k")
    else:
        program.add_kernel("k", "0x7f00", language, "k", ["ptr"])
    from hostjit.saving.programs import _check_kernels

    with pytest.raises(hostjit.Error, match=r"kernel 'k' of program 'elsewhere' is .* not part of"):
        _check_kernels(program)


def test_a_file_is_replaced_as_a_whole(path: Path) -> None:
    saved(model(), path, X)
    before = path.read_bytes()
    with pytest.raises(hostjit.Error):
        hostjit.save(hostjit.compile(model()), path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    with pytest.raises(FileNotFoundError):
        hostjit.load(path.with_name("missing"))


def test_what_a_later_program_answers_is_left_out(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = hostjit.compile(lambda x: x * SCALE[0])
    compiled(torch.ones(4))
    monkeypatch.setitem(globals(), "SCALE", (7.0,))
    for size in (5, 6, 9):
        compiled(torch.ones(size))
    # The program of four elements and the old number is not what a call of four would run.
    hostjit.save(compiled, path)
    loaded = hostjit.load(path)
    for size in (4, 5, 6, 17):
        torch.testing.assert_close(loaded(torch.ones(size)), torch.full((size,), 7.0))


def test_operators_of_others(path: Path) -> None:
    library = torch.library.Library("hostjit_saving_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    library.impl("twice", torch.empty_like, "Meta")
    saved(lambda x: torch.ops.hostjit_saving_test.twice(x) + 1, path, X)
    torch.testing.assert_close(hostjit.load(path)(X), X * 2 + 1)
    library._destroy()
    with pytest.raises((hostjit.Error, RuntimeError), match=r"hostjit_saving_test::twice"):
        hostjit.load(path)(X)
