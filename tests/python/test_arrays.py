# SPDX-License-Identifier: Apache-2.0
"""Calls with arrays of NumPy: results, types, memory and errors are those of eager calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from no_warnings import no_warnings
from torch import nn

import hostjit

numpy = pytest.importorskip("numpy")


class Policy:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.scale = 2.0

    @torch.no_grad()
    def plain(self, x: Any) -> Any:
        return self.net(torch.from_numpy(x).float()).numpy()

    @torch.no_grad()
    def in_a_batch(self, x: Any) -> Any:
        t = torch.as_tensor(x, dtype=torch.float32, device="cpu").unsqueeze(0)
        return self.net(t).squeeze(0).cpu().numpy()

    @torch.no_grad()
    def first_of_a_batch(self, x: Any) -> Any:
        return self.net(torch.tensor(x, dtype=torch.float32)[None]).cpu().numpy()[0]

    def detached(self, x: Any) -> Any:
        return self.net(torch.tensor(x).float()).detach().numpy().astype(numpy.float64)

    def pair(self, x: Any) -> Any:
        y = self.net(torch.from_numpy(x[:4]).float()).detach()
        return y.numpy(), y.sum(), self.scale, len(x), x.shape, None

    @torch.no_grad()
    def in_place(self, x: Any) -> Any:
        torch.from_numpy(x).mul_(self.scale)
        return x

    @torch.no_grad()
    def drawn(self, x: Any) -> Any:
        t = torch.from_numpy(x.astype(numpy.float32))
        return (self.net(t) + torch.randn(2)).numpy()

    def computed(self, x: Any) -> Any:
        return (numpy.sin(x) * 2).sum()

    def clipped(self, x: Any) -> Any:
        t = torch.from_numpy(numpy.clip(x, -1, 1)).float()
        return self.net(t).detach().numpy()

    def element(self, x: Any) -> Any:
        return self.net(torch.from_numpy(x).float()).detach().numpy()[0]

    def read(self, x: Any) -> Any:
        return self.net(torch.from_numpy(x).float()).sum().item()

    @torch.no_grad()
    def chosen(self, x: Any) -> Any:
        return int(self.net(torch.as_tensor(x, dtype=torch.float32)).argmax())

    @torch.inference_mode()
    def listed(self, x: Any) -> Any:
        return tuple(self.net(torch.from_numpy(x).float()).tolist())

    @torch.no_grad()
    def decided(self, x: Any) -> Any:
        y = self.net(torch.from_numpy(x).float())
        if y.sum() > 0:
            y = y * self.scale
        return y.numpy(), y

    @torch.no_grad()
    def counted(self, x: Any) -> Any:
        t = torch.from_numpy(x)
        t.add_(1)
        count = int((t > 0).sum())
        return (t.float() * count).numpy(), count

    @torch.no_grad()
    def same_twice(self, x: Any) -> Any:
        return self.both(x, x)

    def both(self, x: Any, y: Any) -> Any:
        t = torch.from_numpy(y)
        return t * 2 if x is y and t.sum().item() > -99 else None

    @torch.no_grad()
    def kept_over(self, x: Any) -> Any:
        index = int(self.net(torch.from_numpy(x).float()).argmax())
        return x[index]

    @torch.no_grad()
    def computed_behind(self, x: Any) -> Any:
        y = self.net(torch.from_numpy(x).float())
        self.index = y.argmax().item()
        return numpy.clip(y.numpy(), -0.1, 0.1).sum(), self.index

    def differentiated(self, x: Any) -> Any:
        return self.net(torch.from_numpy(x).float())

    def scaled(self, x: Any) -> Any:
        return torch.ones(6) * x, torch.full((), 0.1) + x, torch.ones(6) == x[:1]

    def backwards(self, x: Any) -> Any:
        return torch.from_numpy(x[::-1])


COMPILED = ["plain", "in_a_batch", "first_of_a_batch", "detached", "pair", "in_place", "drawn"]
PARTS = ["read", "chosen", "listed", "decided", "counted", "same_twice", "element"]
EAGER = ["computed", "clipped", "kept_over", "backwards", "scaled"]


def compare(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for item, other in zip(found, expected, strict=True):
            compare(item, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
        assert found.requires_grad == expected.requires_grad
    elif isinstance(expected, type):
        assert found is expected
    elif expected is not None:
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)
        numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float64, numpy.int64])
@pytest.mark.parametrize("way", [*COMPILED, *PARTS, *EAGER, "differentiated", "computed_behind"])
def test_answers_are_those_of_eager(way: str, dtype: Any) -> None:
    ours, eager = Policy(), Policy()
    fast, slow = hostjit.compile(getattr(ours, way)), getattr(eager, way)
    generator = numpy.random.default_rng(0)
    for number in range(6):
        x = (generator.standard_normal(4) * 3).astype(dtype)
        if number == 4:
            ours.scale = eager.scale = 3.0
        given = x.copy(), x.copy()
        results = []
        for call, argument in zip((fast, slow), given, strict=True):
            torch.manual_seed(number)
            try:
                results.append(call(argument))
            except (RuntimeError, ValueError, TypeError) as error:
                results.append((Exception, type(error)))
        compare(*results)
        numpy.testing.assert_array_equal(*given)


@pytest.mark.parametrize("way", COMPILED)
def test_no_python_runs_once_it_is_compiled(way: str) -> None:
    policy = Policy()
    fast = hostjit.compile(getattr(policy, way))
    x = numpy.ones(4)
    with no_warnings():
        for _ in range(2):
            fast(x)
    (found,) = fast.owner._arrays._whole.specializations
    assert found.program is not None


@pytest.mark.parametrize("way", PARTS)
def test_a_call_that_breaks_runs_in_parts(way: str) -> None:
    fast = hostjit.compile(getattr(Policy(), way))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            fast(numpy.ones(4))
    said = [str(warning.message) for warning in caught if "hostjit" in str(warning.message)]
    assert len(said) == 1 and "runs in parts" in said[0], said
    (first,) = fast.owner._arrays._parts.specializations
    assert first.program is not None


def test_a_call_that_breaks_and_has_no_fallback_is_refused() -> None:
    with pytest.warns(UserWarning, match="runs eagerly with NumPy's arrays"):
        hostjit.compile(Policy().chosen, fallback=False)(numpy.ones(4))


@pytest.mark.parametrize("way", EAGER[:3])
def test_what_numpy_computes_runs_eagerly(way: str) -> None:
    fast = hostjit.compile(getattr(Policy(), way))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # What Dynamo says of CPython 3.13.0, which later ones of 3.13 repair.
        warnings.filterwarnings("ignore", "Guards may run slower", RuntimeWarning)
        for _ in range(3):
            fast(numpy.ones(4))
    said = [str(warning.message) for warning in caught]
    assert len(said) == 1
    assert "runs eagerly with NumPy's arrays" in said[0]


def test_memory_is_shared_as_in_eager_calls() -> None:
    def call(x: Any, y: Any, *, z: Any) -> Any:
        t = torch.from_numpy(x)
        return t, t.numpy(), x, y is z, (t * 2).numpy()

    fast = hostjit.compile(call)
    x, y = numpy.ones(3), numpy.zeros(3)
    for z in (y, numpy.zeros(3), y):
        tensor, array, same, equal, fresh = fast(x, y, z=z)
        assert same is x
        assert equal is (y is z)
        for shared in (tensor.numpy(), array):
            assert numpy.shares_memory(shared, x)
        assert not numpy.shares_memory(fresh, x)
        fresh[0] = 7
        numpy.testing.assert_array_equal(x, numpy.ones(3))


@pytest.mark.filterwarnings("ignore:hostjit", "ignore:The given NumPy array is not writable")
def test_arrays_that_no_tensor_is_over() -> None:
    def call(x: Any) -> Any:
        return torch.tensor(x.tolist()) * 2 if x.ndim else x

    fast = hostjit.compile(call)
    constant = numpy.ones(3)
    constant.flags.writeable = False
    for x in (numpy.ones(3)[::-1], constant, numpy.ones(3, ">f8"), numpy.ones(3)):
        for _ in range(2):
            torch.testing.assert_close(fast(x), call(x))


@pytest.mark.filterwarnings("ignore:hostjit")
def test_other_values_of_numpy_and_none() -> None:
    def call(x: Any, scale: Any = None) -> Any:
        t = torch.as_tensor(x["x"] if isinstance(x, dict) else x)
        return t * 2 if scale is None else t * float(scale)

    fast = hostjit.compile(call)
    array = numpy.ones(3)
    for args in (
        *((array,), (torch.ones(3),), (array, numpy.float64(3)), ({"x": array},), (array, 2.0)),
        *((torch.ones(3), 4.0), (array,), (torch.ones(2),), (numpy.ones((2, 2)),)),
    ):
        for _ in range(2):
            torch.testing.assert_close(fast(*args), call(*args))


def test_gradients_flow_to_parameters() -> None:
    policy = Policy()
    fast: Callable[..., Any] = hostjit.compile(policy.differentiated)
    for _ in range(3):
        x = numpy.random.default_rng(0).standard_normal(4)
        gradients = []
        for call in (fast, policy.differentiated):
            gradients.append(torch.autograd.grad(call(x).sum(), list(policy.net.parameters())))
        torch.testing.assert_close(*gradients)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_arrays_that_are_kept_are_the_very_objects() -> None:
    class Keeper:
        def __init__(self) -> None:
            self.last: Any = None
            self.state = torch.zeros(3)

        def argument(self, x: Any) -> Any:
            self.last = x
            return torch.from_numpy(x) * 2

        def result(self, x: Any) -> Any:
            self.last = (torch.from_numpy(x) * 2).numpy()
            return self.last

        def filtered(self, x: Any) -> Any:
            self.state = self.state * 0.5 + torch.from_numpy(x)
            return self.state.numpy()

    keeper, eager = Keeper(), Keeper()
    argument, result = hostjit.compile(keeper.argument), hostjit.compile(keeper.result)
    filtered = hostjit.compile(keeper.filtered)
    for number in range(3):
        x = numpy.full(3, number + 1.0)
        argument(x)
        assert keeper.last is x
        assert result(x) is keeper.last
        with torch.no_grad():
            compare(filtered(x), eager.filtered(x))
    assert "program @" in filtered.owner._arrays._whole.host_ir()


class Sensors:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(5, 2)
        self.last: Any = None

    @torch.inference_mode()
    def joined(self, given: Any) -> Any:
        parts = [given["eye"], given["arm"][0]]
        return self.net(torch.cat([torch.as_tensor(x, dtype=torch.float32) for x in parts])).numpy()

    def compared(self, given: Any, other: Any = None) -> Any:
        same = given["eye"] is given["arm"][0], given is other
        return torch.from_numpy(given["eye"]) * 2, same, given["eye"], len(given), given["name"]

    def written(self, given: Any) -> Any:
        torch.from_numpy(given["eye"]).mul_(2)
        return given["arm"][0]


class ChangingSensors(Sensors):
    def changed(self, given: Any) -> Any:
        y = torch.from_numpy(given["eye"]) * 2
        given["eye"] = y.numpy()
        return y

    def shortened(self, given: Any) -> Any:
        return torch.from_numpy(given["arm"].pop()) + 1

    def returned(self, given: Any) -> Any:
        return torch.from_numpy(given["eye"]) + 1, given

    def raising(self, given: Any) -> Any:
        given["eye"] = None
        return torch.from_numpy(given["arm"][0]) @ torch.ones(3, 3)

    def kept(self, given: Any) -> Any:
        self.last = given
        return torch.from_numpy(given["eye"]) + 1


def sensed(number: int) -> dict[str, Any]:
    eye, arm = numpy.full(3, number + 1.0), numpy.full(2, number + 2.0)
    return {"eye": eye, "arm": [arm if number % 2 else eye[:2].copy()], "name": "left"}


@pytest.mark.parametrize("way", ["joined", "compared", "written"])
def test_arrays_in_containers_are_compiled(way: str) -> None:
    fast, slow = (getattr(Sensors(), way) for _ in range(2))
    fast = hostjit.compile(fast)
    with no_warnings():
        for number in range(4):
            ours, theirs = sensed(number), sensed(number)
            found, expected = fast(ours), slow(theirs)
            if way == "compared":
                assert found[2] is ours["eye"] and found[1] == expected[1]
                assert found[3:] == expected[3:]
                found, expected = found[0], expected[0]
                assert fast(ours, other=ours)[1] == slow(theirs, theirs)[1]
            if way == "written":
                assert found is ours["arm"][0]
            torch.testing.assert_close(found, expected)
            numpy.testing.assert_array_equal(ours["eye"], theirs["eye"])
    assert "program @" in fast.owner._arrays._whole.host_ir()


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("way", ["changed", "shortened", "returned", "kept"])
def test_containers_of_arrays_that_are_changed_or_kept_are_the_callers(way: str) -> None:
    sensors = ChangingSensors()
    fast, slow = hostjit.compile(getattr(sensors, way)), getattr(ChangingSensors(), way)
    for number in range(4):
        ours, theirs = sensed(number), sensed(number)
        found, expected = fast(ours), slow(theirs)
        if way == "returned":
            assert found[1] is ours
            found, expected = found[0], expected[0]
        if way == "kept":
            assert sensors.last is ours
        torch.testing.assert_close(found, expected)
        assert len(ours["arm"]) == len(theirs["arm"])
        numpy.testing.assert_array_equal(ours["eye"], theirs["eye"])


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_container_of_arrays_is_changed_by_a_call_that_raises() -> None:
    fast = hostjit.compile(ChangingSensors().raising)
    for number in range(4):
        given = sensed(number)
        with pytest.raises(RuntimeError):
            fast(given)
        assert given["eye"] is None


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_call_with_arrays_in_a_dict_that_breaks_runs_eagerly() -> None:
    @torch.no_grad()
    def chosen(given: Any) -> Any:
        y = torch.from_numpy(given["eye"])
        given["eye"] = None
        return int(y.argmax())

    fast = hostjit.compile(chosen)
    for number in range(4):
        given = sensed(number)
        assert fast(given) == 0 and given["eye"] is None
