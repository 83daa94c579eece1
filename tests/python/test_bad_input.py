# SPDX-License-Identifier: Apache-2.0
"""Wrong or unusual input: the right answer or a precise error, and the object still works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from no_warnings import no_warnings
from torch import nn
from torch.testing import assert_close

import hostjit


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return x * factor


@pytest.fixture
def fast() -> Any:
    return hostjit.compile(scale)


def still_works(fast: Any) -> None:
    x = torch.randn(3)
    assert_close(fast(x), x * 2)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing 1 required positional argument: 'x'"),
        ((torch.ones(1), 1.0, 2.0), {}, "takes from 1 to 2 positional arguments but 3 were given"),
        ((torch.ones(1),), {"scale": 1.0}, "unexpected keyword argument 'scale'"),
        ((torch.ones(1),), {"x": torch.ones(1)}, "multiple values for argument 'x'"),
    ],
)
def test_wrong_arguments(
    fast: Any, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=message):
            fast(*args, **kwargs)
    still_works(fast)


def test_wrong_kind(fast: Any) -> None:
    with pytest.raises(TypeError) as eager:
        scale("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError) as found:
        fast("text")
    assert str(found.value) == str(eager.value)
    assert fast(3) == 6.0
    still_works(fast)


def test_shapes_that_eager_refuses() -> None:
    fast = hostjit.compile(lambda a, b: a @ b + 1)
    with pytest.raises(RuntimeError) as eager:
        torch.ones(2, 3) @ torch.ones(4, 5)
    with pytest.raises(RuntimeError) as found:
        fast(torch.ones(2, 3), torch.ones(4, 5))
    assert type(found.value) is type(eager.value)
    assert str(found.value) == str(eager.value)
    assert_close(fast(torch.ones(2, 3), torch.ones(3, 2)), torch.full((2, 2), 4.0))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, dtype=torch.float64),
        torch.ones(3, dtype=torch.int32),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(3, dtype=torch.complex64).conj().imag,
        torch.ones(()),
        torch.ones(0),
        torch.ones(2, 0, 3),
        torch.ones(3, device="meta"),
        torch.eye(3).to_sparse(),
        nn.Parameter(torch.ones(3)),
        torch._efficientzerotensor(3),
    ],
    ids=lambda t: f"{t.dtype}-{tuple(t.shape)}-{t.layout}-{t.device}",
)
def test_unusual_tensors(fast: Any, tensor: torch.Tensor) -> None:
    still_works(fast)
    expected = scale(tensor)
    for _ in range(2):
        found = fast(tensor)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        assert found.device == expected.device and found.layout == expected.layout
        if found.device.type != "meta":
            assert_close(found, expected)
    still_works(fast)


@pytest.mark.filterwarnings("ignore")
def test_quantised_tensors() -> None:
    quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    fast = hostjit.compile(lambda x: x.dequantize() * 2)
    assert_close(fast(quantised), quantised.dequantize() * 2)


class Tagged(torch.Tensor):
    """A subclass that counts what is done to it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_keep_their_meaning(fast: Any) -> None:
    still_works(fast)
    tagged = torch.ones(3).as_subclass(Tagged)
    for _ in range(2):
        before = Tagged.calls
        found = fast(tagged)
        assert type(found) is Tagged
        assert Tagged.calls > before
    still_works(fast)


def test_fake_and_functional_tensors(fast: Any) -> None:
    from torch._subclasses import FakeTensor, FakeTensorMode

    still_works(fast)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(3))
        assert isinstance(fast(fake), FakeTensor)
    functional = torch._to_functional_tensor(torch.ones(3))
    assert torch._is_functional_tensor(fast(functional))
    still_works(fast)


def test_tensors_without_memory(fast: Any) -> None:
    x = torch.ones(3)
    still_works(fast)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="has no memory"):
        fast(x)
    still_works(fast)


def test_dispatch_modes_see_the_operators(fast: Any) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    still_works(fast)
    with Count() as mode:
        fast(torch.ones(3))
    assert mode.count > 0


def test_data_dependent_control_flow_says_where() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x

    line = rf"test_bad_input\.py:{f.__code__.co_firstlineno + 1}"
    with pytest.raises(hostjit.CaptureError, match=line):
        hostjit.compile(f, fallback=False)(torch.ones(3))
    fast = hostjit.compile(f)
    with no_warnings():  # it is recorded
        for x in (-torch.ones(3), torch.ones(3), torch.ones(4), -torch.ones(3)):
            assert_close(fast(x), f(x))


@pytest.mark.parametrize("node", ["aten::take", "launch_kernel @index"])
def test_errors_in_the_middle_of_a_program(node: str) -> None:
    def f(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x = x * 2
        return (x.take(index) if "take" in node else x[index]) + 1

    fast = hostjit.compile(f)
    x = torch.randn(4)
    assert_close(fast(x, torch.tensor([1, 2])), f(x, torch.tensor([1, 2])))
    bad = torch.tensor([1, 9])
    with pytest.raises(IndexError) as eager:
        f(x, bad)
    for runtime in ("jit", "evaluator"):
        with hostjit.runtime(runtime), pytest.raises(IndexError) as found:
            fast(x, bad)
        assert str(found.value) == str(eager.value)
        notes = "\n".join(found.value.__notes__)
        assert node in notes and "test_bad_input.py" in notes
    assert_close(fast(x, torch.tensor([0, 3])), f(x, torch.tensor([0, 3])))


def test_not_callable() -> None:
    with pytest.raises(
        TypeError,
        match=r"FusionDefinition, a Program or Host IR text, got int",
    ):
        hostjit.compile(3)
    with pytest.raises(hostjit.Error, match="unknown runtime 'fast'"):
        hostjit.compile(scale, runtime="fast")


def test_malformed_text() -> None:
    with pytest.raises(hostjit.Error, match="line 2, column"):
        hostjit.compile("program @f(%x: tensor<f32, [4], cpu>) {\n  nonsense\n}")


def test_unknown_knob() -> None:
    with pytest.raises(hostjit.Error, match="host_ir_jit"), hostjit.knobs(disable="host_ir_git"):
        pass


@pytest.mark.parametrize("wrap", [hostjit.compile, hostjit.capture])
def test_containers_in_themselves_run_eagerly(wrap: Any) -> None:
    values: dict[str, Any] = {"gain": 2}
    values["self"] = [values]
    fast = wrap(lambda x, values: x * values["self"][0]["gain"])
    x = torch.ones(2)
    with pytest.warns(UserWarning, match="an argument is in itself"):
        assert torch.equal(fast(x, values), x * 2)
    values["gain"] = 3
    assert torch.equal(fast(x, values), x * 3)


@pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")
def test_globals_that_code_asks_for() -> None:
    fast = hostjit.compile(lambda x: x * globals()["__name__"].count("test"))
    for _ in range(3):
        assert torch.equal(fast(torch.ones(2)), torch.ones(2) * __name__.count("test"))
