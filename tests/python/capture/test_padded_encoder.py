# SPDX-License-Identifier: Apache-2.0
"""Transformer encoders with a mask of padding: eager's results, padded rows included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

LENGTHS = {"some": [5, 3, 1], "one is empty": [5, 2, 0], "all": [3, 2, 1], "none": [5, 5, 5]}
MASKS: dict[str, Tensor] = {
    name: torch.arange(5) >= torch.tensor(lengths)[:, None] for name, lengths in LENGTHS.items()
}
MASKS["on the left"] = MASKS["some"].flip(1)
MASKS["with a gap"] = MASKS["some"].roll(1, 1)
MASKS["of floats"] = torch.zeros(3, 5).masked_fill(MASKS["some"], -torch.inf)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without a check": {"mask_check": False},
    "not nested": {"enable_nested_tensor": False},
    "with a norm": {"norm": nn.LayerNorm(8)},
}
LAYERS: dict[str, dict[str, Any]] = {
    "gelu": {"activation": "gelu"},
    "float64": {"dtype": torch.float64},
    "odd heads": {"nhead": 1},
    "norm first": {"norm_first": True},
    "sequence first": {"batch_first": False},
    "no bias": {"bias": False},
}


def encoder(options: dict[str, Any] | None = None, **layer: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    given = {"nhead": 2, "dim_feedforward": 12, "batch_first": True, **layer}
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, **given), 2, **(options or {}))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def same(*results: Any) -> None:
    torch.testing.assert_close(
        *results, rtol=1e-4, atol=1e-5, equal_nan=True, check_stride=isinstance(results[0], Tensor)
    )


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("options", OPTIONS)
def test_masks(options: str, runtime: str) -> None:
    """One program has eager's zeros for all masks of a dtype, and what eager has elsewhere."""
    model = encoder(OPTIONS[options])
    compiled = hostjit.compile(model, runtime=runtime, fallback=False)
    with torch.no_grad():
        for mask in MASKS.values():
            x = torch.randn(3, 5, 8)
            same(*(call(x, src_key_padding_mask=mask) for call in (compiled, model)))
    assert len(compiled.specializations) == 2


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("layer", LAYERS)
def test_layers(layer: str) -> None:
    model = encoder(**LAYERS[layer])
    compiled = hostjit.compile(model, fallback=False)
    batch_first = LAYERS[layer].get("batch_first", True)
    with torch.no_grad():
        for mask in (MASKS["some"], MASKS["with a gap"]):
            x = torch.randn(3, 5, 8, dtype=LAYERS[layer].get("dtype"))
            x = x if batch_first else x.transpose(0, 1).contiguous()
            same(*(call(x, None, mask) for call in (compiled, model)))


def test_padding_that_is_no_number() -> None:
    model = encoder()
    compiled = hostjit.compile(model, fallback=False)
    x = torch.randn(3, 5, 8)
    x[MASKS["some"]] = torch.nan
    with torch.no_grad():
        found, expected = (c(x, src_key_padding_mask=MASKS["some"]) for c in (compiled, model))
    same(found, expected)
    assert not found.isnan().any()


def test_nothing_but_padding() -> None:
    model = encoder()
    compiled = hostjit.compile(model, fallback=False)
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        for _ in range(2):
            for call in (compiled, model):
                with pytest.raises(RuntimeError, match="at least one constituent tensor should"):
                    call(x, src_key_padding_mask=torch.ones(3, 5, dtype=torch.bool))
            same(*(c(x, src_key_padding_mask=MASKS["some"]) for c in (compiled, model)))


def test_any_size() -> None:
    model = encoder()
    compiled = hostjit.compile(model, fallback=False)
    with torch.no_grad():
        for batch, length in ((3, 5), (4, 6), (2, 7), (6, 3)):
            x, lengths = torch.randn(batch, length, 8), torch.arange(1, batch + 1)
            mask = torch.arange(length) >= lengths[:, None]
            same(*(call(x, src_key_padding_mask=mask) for call in (compiled, model)))
    # There is one for each size before.
    assert len(compiled.specializations) == (2 if torch.__version__ >= (2, 12) else 4)


def test_state_that_changes() -> None:
    """Where gradients are wanted, eager computes padded rows too; so it does in training."""
    model = encoder({"norm": nn.LayerNorm(8)}, dropout=0.0)
    compiled = hostjit.compile(model, fallback=False)
    x, mask = torch.randn(3, 5, 8), MASKS["some"]

    def check() -> Any:
        results = [call(x, src_key_padding_mask=mask) for call in (compiled, model)]
        same(*results)
        return results

    for wants_gradients in (True, False, True):
        with torch.set_grad_enabled(wants_gradients):
            check()
    model.requires_grad_(False)
    check()
    assert model.norm is not None
    wanted = list(model.norm.requires_grad_().parameters())
    same(*(torch.autograd.grad(result.square().sum(), wanted) for result in check()))
    with torch.no_grad():
        model.requires_grad_().train()
        check()
        model.eval().use_nested_tensor = False
        check()
        model.use_nested_tensor = True
        check()


class Pooled(nn.Module):
    """The mean of what an encoder makes of a sequence, over all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = encoder()
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.head(self.encoder(x * 2, src_key_padding_mask=mask).mean(1))


def add_hook(model: Pooled) -> None:
    model.encoder.layers[1].linear1.register_forward_hook(lambda module, args, result: result * 2)


def without_activation(model: Pooled) -> None:
    model.encoder.layers[1].activation_relu_or_gelu = 0


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("change", [add_hook, without_activation])
def test_layers_that_see_nested_tensors(change: Callable[[Pooled], None]) -> None:
    """The encoder runs eagerly then."""
    model = Pooled().eval()
    compiled = hostjit.compile(model)
    with torch.no_grad():
        for _ in range(2):
            for mask in MASKS.values():
                x = torch.randn(3, 5, 8)
                same(*(call(x, mask) for call in (compiled, model)))
            change(model)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_behind_a_loop_that_is_not_followed() -> None:
    """Frames that Dynamo looks at by themselves."""
    model = Pooled().eval()

    def sums(x: Tensor, mask: Tensor) -> Tensor:
        total = torch.zeros(3, 4)
        for _ in range(3):
            total = total + model(x, mask)
            if total.sum() > 1e9:
                break
            total += model.encoder(x, src_key_padding_mask=mask)[:, -1, :4]
        return total

    compiled = hostjit.compile(sums)
    with torch.no_grad():
        for mask in MASKS.values():
            x = torch.randn(3, 5, 8)
            same(*(call(x, mask) for call in (compiled, sums)))


def test_a_whole_transformer() -> None:
    torch.manual_seed(0)
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 1, "dim_feedforward": 12}
    model = nn.Transformer(8, 2, **sizes, batch_first=True).eval()
    compiled = hostjit.compile(model, fallback=False)
    with torch.no_grad():
        for mask in (MASKS["some"], MASKS["on the left"]):
            x, y = torch.randn(3, 5, 8), torch.randn(3, 4, 8)
            for memory_mask in (None, mask):
                masks = {"src_key_padding_mask": mask, "memory_key_padding_mask": memory_mask}
                same(*(call(x, y, **masks) for call in (compiled, model)))
