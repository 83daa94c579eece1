# SPDX-License-Identifier: Apache-2.0
"""What cannot be captured is refused before anything runs, with what, where and what to do."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import hostjit
from hostjit.capturing.capture import capture
from hostjit.capturing.errors import CaptureError, CaptureFailure


def refused(target: Any, *args: Any, **kwargs: Any) -> CaptureError:
    with torch.no_grad(), pytest.raises(CaptureError) as caught:
        capture(target, args, kwargs)
    # The machinery works afterwards.
    x = torch.randn(3)
    assert torch.equal(capture(torch.relu, (x,)).run(x), torch.relu(x))
    return caught.value


class Subclass(torch.Tensor):
    pass


def fake_tensor() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(3)


def functional_tensor() -> torch.Tensor:
    return torch._to_functional_tensor(torch.randn(3))  # type: ignore[no-any-return]


UNSUPPORTED: dict[str, tuple[Callable[[], Any], str]] = {
    "sparse": (lambda: torch.eye(3).to_sparse(), "layout torch.sparse_coo"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), "layout torch.sparse_csr"),
    "subclass": (lambda: torch.randn(3).as_subclass(Subclass), "a tensor subclass"),
    "fake": (fake_tensor, "a fake tensor"),
    "functional": (functional_tensor, "a functional tensor"),
    "meta": (lambda: torch.empty(3, device="meta"), "a meta tensor"),
    "numpy": (lambda: torch.randn(3).numpy(), "a NumPy value"),
    "quantised": (
        lambda: torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8),
        "a quantised tensor",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_inputs_are_named(name: str) -> None:
    make, what = UNSUPPORTED[name]
    if name == "numpy":
        pytest.importorskip("numpy")
    error = refused(lambda x, y: x, torch.randn(3), {"key": [make()]})
    assert error.failure is CaptureFailure.UNSUPPORTED_INPUT
    assert error.what.startswith("argument 1['key'][0] is ") and what in error.what
    error = refused(lambda x: x, x=make())
    assert error.what.startswith("argument 'x' is ")


def test_an_unsupported_bound_tensor_is_named() -> None:
    table = torch.eye(3).to_sparse()
    error = refused(lambda x: table @ x, torch.randn(3, 3))
    assert error.failure is CaptureFailure.UNSUPPORTED_INPUT, error
    assert "sparse" in error.what


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantised_tensors_on_the_way_are_named() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()

    error = refused(function, torch.randn(3))
    assert error.where == f"{__file__}:{function.__code__.co_firstlineno + 1}"
    if torch.__version__ < (2, 12):  # Dynamo has no fake tensors of such types there
        assert error.failure is CaptureFailure.GRAPH_BREAK
        assert "UnsupportedFakeTensor" in error.what
    else:
        assert error.failure is CaptureFailure.UNSUPPORTED_PROGRAM
        assert "torch.qint8" in error.what


def test_data_dependent_control_flow() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x

    error = refused(function, torch.randn(3))
    assert error.failure is CaptureFailure.DATA_DEPENDENT
    assert error.where == f"{__file__}:{function.__code__.co_firstlineno + 1}"
    assert "torch.where" in error.hint


def test_item() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * x[0].item()

    error = refused(function, torch.randn(3))
    assert error.failure is CaptureFailure.DATA_DEPENDENT
    assert error.where == f"{__file__}:{function.__code__.co_firstlineno + 1}"


def test_sizes_that_depend_on_values() -> None:
    assert refused(torch.nonzero, torch.randn(3)).failure is CaptureFailure.DATA_DEPENDENT


def test_gradients_whose_sizes_depend_on_values() -> None:
    """The gradient of what a mask writes has as many elements as the mask selects."""

    def function(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.index_put(x, (mask,), values)

    mask = torch.tensor([True, False, True])
    with pytest.raises(CaptureError) as caught:
        hostjit.compile(function, fallback=False)(
            torch.randn(3), mask, torch.randn(2, requires_grad=True)
        )
    assert caught.value.failure is CaptureFailure.UNSUPPORTED_PROGRAM
    assert "aten.nonzero.default returns depends on the values" in caught.value.what


def test_graph_break() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    error = refused(function, torch.randn(3))
    assert error.failure is CaptureFailure.GRAPH_BREAK
    assert error.where == f"{__file__}:{function.__code__.co_firstlineno + 1}"
    assert error.__cause__ is not None


def test_a_call_that_raises() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 1:
            raise ValueError("one dimension")
        return x

    assert refused(function, torch.randn(3)).failure is CaptureFailure.USER_EXCEPTION
    error = refused(nn.Linear(4, 4), torch.randn(3))
    assert error.failure is CaptureFailure.USER_EXCEPTION


def test_wrong_argument_count_and_names() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    refused(function)
    refused(function, torch.randn(3), torch.randn(3))
    refused(function, y=torch.randn(3))


def test_higher_order_operators() -> None:
    def function(x: torch.Tensor) -> Any:
        return torch._higher_order_ops.strict_mode(lambda a: a + 1, (x,))

    error = refused(function, torch.randn(3))
    assert error.failure is CaptureFailure.UNSUPPORTED_PROGRAM
    assert "strict_mode" in error.what and error.where is not None


def test_not_callable() -> None:
    refused(3, torch.randn(3))


def test_a_result_that_needs_a_gradient() -> None:
    model = nn.Linear(3, 3)
    assert capture(model, (torch.randn(3),)).backward is not None

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return model(x)

    assert refused(function, torch.randn(3)).failure is CaptureFailure.SWITCHES_GRADIENTS


def test_a_result_beside_the_same_detached_runs_eagerly_while_gradients_are_enabled() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y.detach()

    fast = hostjit.compile(function)
    weight = torch.full((3,), 3.0, requires_grad=True)
    with pytest.warns(UserWarning, match="results share memory"):
        whole, detached = fast(torch.ones(2, 3))
    whole.mul_(weight)
    assert whole.requires_grad and not detached.requires_grad
    assert torch.equal(detached, torch.full((2, 3), 6.0))
    with torch.no_grad():
        whole, detached = fast(torch.ones(2, 3))
    assert detached.data_ptr() == whole.data_ptr()
    assert "launch_kernel" in fast.host_ir()


def test_overlapping_inputs_that_are_written() -> None:
    base = torch.randn(4)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    error = refused(function, base[:3], base[1:])
    assert "share memory" in error.what
    with torch.no_grad():
        program = capture(lambda x, y: x + y, (base[:3], base[1:]))
    assert torch.equal(program.run(base[:3], base[1:]), base[:3] + base[1:])


SHIFTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a part onto its neighbour": lambda x: x[1:].copy_(x[:-1]),
    "an operand shifted": lambda x: x[1:].add_(x[:-1]),
    "a transpose": lambda x: torch.add(x, x.t(), out=x),
    "an expanded tensor": lambda x: x[:1].expand(3, 3).add_(1),
    "rows that overlap": lambda x: x.as_strided((2, 4), (1, 1)).add_(1),
    "an operand as the result": lambda x: torch.mm(x, x, out=x),
    "a row of the operand as the result": lambda x: torch.sum(x, 0, out=x[0]),
    "two results in one": lambda x: torch.max(x, 0, out=(x[0], x.view(torch.int64)[0])),
}


@pytest.mark.parametrize("name", SHIFTS)
def test_written_memory_that_is_read_elsewhere(name: str) -> None:
    """Eager raises for some, and gives results of the order of its loops for the others."""
    error = refused(SHIFTS[name], torch.arange(9, dtype=torch.float64).view(3, 3))
    assert "writes to memory that it uses more than once" in error.what
    assert error.where is not None

    fast = hostjit.compile(SHIFTS[name])
    outcomes = []
    for function in (SHIFTS[name], fast):
        x = torch.arange(9, dtype=torch.float64).view(3, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                outcomes.append(f"{function(x)} {x}")
            except RuntimeError as raised:
                outcomes.append(str(raised))
    assert outcomes[0] == outcomes[1]


READERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "~ of an expanded mask": lambda m: ~m[:1].expand(3, 3),
    "& of an expanded mask": lambda m: m[:1].expand(3, 3) & m,
    "| of neighbours": lambda m: m[1:] | m[:-1],
    "index by an overlapping mask": lambda m: m[[0, 1, 2]] & torch.isin(m.long(), m[:, 1:].long()),
    "isclose of neighbours": lambda m: torch.isclose(m[1:].float(), m[:-1].float()),
}


@pytest.mark.parametrize("name", READERS)
def test_operators_that_write_nothing_where_gradients_are_recorded(name: str) -> None:
    mask = torch.arange(9).view(3, 3) % 2 == 0
    weight = torch.ones(3, requires_grad=True)

    def function(m: torch.Tensor) -> torch.Tensor:
        return READERS[name](m) * weight

    compared = hostjit.compile(function, fallback=False)(mask)
    torch.testing.assert_close(compared, function(mask))
    assert compared.requires_grad


@pytest.mark.parametrize(
    ("function", "dtypes"),
    [
        (torch.sum, [torch.float64]),  # eager adds in float64
        (torch.add, [torch.float64]),  # eager converts
        (torch.complex, [torch.complex128]),  # eager raises, as for the others
        (torch.multinomial, [torch.float32]),
        (torch.aminmax, [torch.float64, torch.float64]),
        (torch.sort, [torch.float32, torch.int32]),
    ],
)
def test_results_given_with_another_dtype(
    function: Callable[..., Any], dtypes: list[torch.dtype]
) -> None:
    operands = [torch.rand(3)] * (2 if function in (torch.add, torch.complex) else 1)
    options: dict[str, Any] = {"num_samples": 2} if function is torch.multinomial else {}
    options |= {"dim": 0} if function in (torch.sum, torch.aminmax) else {}

    def call(*out: torch.Tensor) -> Any:
        return function(*operands, **options, out=out if len(out) > 1 else out[0])

    shape = () if options.get("dim") == 0 else (2,) if function is torch.multinomial else (3,)
    error = refused(call, *(torch.empty(shape, dtype=dtype) for dtype in dtypes))
    if function is torch.aminmax and torch.__version__ >= (2, 14):
        # Fake tensors raise there what eager raises.
        assert "Expected out tensor to have dtype" in error.what
    else:
        assert "is given" in error.what


APART: dict[str, Callable[[torch.Tensor], Any]] = {
    "another row": lambda x: x[0].copy_(x[1]),
    "other columns": lambda x: x[:, :2].mul_(x[:, 2:4]),
    "every other column": lambda x: x[:, ::2].copy_(x[:, 1::2]),
    "another corner": lambda x: x[:2, 2:].add_(x[2:, :2]),
    "the same": lambda x: x[1:].mul_(x[1:]),
    "the same as the result": lambda x: torch.add(x, x, out=x),
    "an expanded operand": lambda x: x[1:].add_(x[:1].expand(3, 4)),
    "nothing": lambda x: x[:0].copy_(x[:0]),
}


@pytest.mark.parametrize("name", APART)
def test_written_memory_that_is_not_read(name: str) -> None:
    x, y = (torch.arange(16.0).view(4, 4) for _ in range(2))
    with torch.no_grad():
        program = capture(APART[name], (x,))
    program.run(x)
    APART[name](y)
    assert torch.equal(x, y)


@pytest.mark.parametrize("first", [2, [1.0], None])
def test_methods_of_tensors_called_on_something_else(first: Any) -> None:
    for method in (torch.Tensor.__rmul__, torch.Tensor.__add__, torch.Tensor.add):
        for other in (torch.ones(3), 3, [2.0]):

            def call(x: Any, method: Any = method) -> Any:
                return method(first, x)

            with pytest.raises(TypeError, match="doesn't apply to"):
                hostjit.compile(call)(other)


def test_metadata_changes_of_an_input() -> None:
    refused(lambda x: x.t_(), torch.randn(2, 3))
    refused(lambda x: x.resize_(10), torch.randn(2, 3))
    refused(lambda x: x.squeeze_(0), torch.randn(1, 3))


def test_inside_a_functorch_transform() -> None:
    failures: list[CaptureFailure] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(CaptureError) as caught:
            capture(torch.relu, (x,))
        failures.append(caught.value.failure)
        return x

    torch.vmap(function)(torch.randn(2, 3))
    assert failures == [CaptureFailure.UNSUPPORTED_INPUT]


def test_the_message_says_what_where_and_what_to_do() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    message = str(refused(function, torch.randn(3)))
    assert message.startswith("cannot capture (graph break): ")
    assert f"\n  at {__file__}:" in message
    assert "\n  to do: " in message


def test_lazy_results_are_left_to_eager() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    for function in (torch.conj, lambda x: x.conj().imag):
        assert refused(function, x).failure is CaptureFailure.LAZY_RESULT
        with pytest.warns(UserWarning, match="conjugated or negated lazily"):
            found = hostjit.compile(function)(x)
        assert found.is_conj() == function(x).is_conj()
        assert found.is_neg() == function(x).is_neg()
        assert found.untyped_storage()._cdata == x.untyped_storage()._cdata


@pytest.mark.parametrize(
    ("function", "expected"),
    [(lambda x: torch.atan2(x, 2), TypeError), (lambda x: torch.max(x, 2), IndexError)],
)
def test_errors_of_the_call_are_those_of_eager(
    function: Callable[..., Any], expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        hostjit.compile(function)(torch.randn(3))


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.mul_(2.5),
        lambda x: x.mul_(torch.ones(4)),
        lambda x: x.multiply_(0.5),
        lambda x: operator.imul(x, 0.5),
        lambda x: (x > 1).mul_(x),
        lambda x: x.float().mul_(1j),
        lambda x: x.float().add_(1j),
        lambda x: operator.isub(x.float(), 1j),
        lambda x: x.addcmul_(x.float(), x.float()),
        lambda x: x.float().addcdiv_(x, x * 1j + 1),
        lambda x: x.logit_(),
        lambda x: x.ldexp_(x),
    ],
)
def test_values_that_eager_does_not_cast_are_not_written(write: Callable[..., Any]) -> None:
    x = torch.arange(4)
    with pytest.raises(RuntimeError, match="can't be cast"):
        write(x)
    fast = hostjit.compile(write)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't be cast"):
            fast(x)
    torch.testing.assert_close(x, torch.arange(4))


@pytest.mark.parametrize("compute", [torch.softmax, torch.log_softmax, nn.functional.softmin])
@pytest.mark.parametrize("dim", [2, -3])
def test_dims_that_there_are_not(compute: Callable[..., Any], dim: int) -> None:
    for wrap in (hostjit.compile, functools.partial(torch.compile, backend="hostjit")):
        fast = wrap(lambda x: compute(x, dim))
        for _ in range(2):
            with pytest.raises(IndexError, match="Dimension out of range"):
                fast(torch.ones(2, 3))


@pytest.mark.parametrize(
    "wrap", [hostjit.compile, functools.partial(torch.compile, backend="hostjit")]
)
def test_numbers_that_vary_and_eager_does_not_cast_are_not_written(wrap: Any) -> None:
    def write(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x.mul_(factor)

    fast = wrap(write)
    for factor in (2, 3, 4, 2.0, 3.5, 4.5):
        x = torch.arange(4)
        if isinstance(factor, int):
            assert torch.equal(fast(x, factor), torch.arange(4) * factor)
        else:
            with pytest.raises(RuntimeError, match="can't be cast"):
                fast(x, factor)


def test_values_that_eager_casts_are_written() -> None:
    def write(x: torch.Tensor, half: torch.Tensor) -> Any:
        return x.mul_(3), half.mul_(0.5).add_(x), (x > 1).mul_(True), half.add_(x, alpha=0.5)

    fast = hostjit.compile(write)
    for factor in (1, 2):
        expected = write(torch.arange(4), torch.ones(4, dtype=torch.half) * factor)
        found = fast(torch.arange(4), torch.ones(4, dtype=torch.half) * factor)
        torch.testing.assert_close(found, expected)
