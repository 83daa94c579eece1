# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch that look at elements of tensors: one program, and eager's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
MASKS: dict[str, Tensor] = {
    "causal": CAUSAL,
    "causal, of booleans": CAUSAL < 0,
    "band": CAUSAL.masked_fill(torch.ones(5, 5).tril(-2) > 0, -torch.inf),
    "weights": torch.linspace(-1, 1, 25).view(5, 5),
    "of another size": CAUSAL.expand(4, 5, 5),
}


def transformer(**options: Any) -> nn.Transformer:
    torch.manual_seed(0)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 24}
    return nn.Transformer(16, 2, **sizes, dropout=0.0, batch_first=True, **options)


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_masks_of_a_transformer(mask: str, gradients: bool, runtime: str) -> None:
    model = transformer().train(gradients)
    masks = {"src_mask": MASKS[mask], "tgt_mask": MASKS[mask]}
    compiled = hostjit.compile(model, runtime=runtime, fallback=False)
    with torch.set_grad_enabled(gradients):
        for _ in range(2):
            source, target = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
            results = [call(source, target, **masks) for call in (compiled, model)]
            # Where eager's operator for inference leaves out all that is not zero, NaN is.
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5, equal_nan=True)
            if gradients:
                wanted = list(model.parameters())
                found = [torch.autograd.grad(r.square().sum(), wanted) for r in results]
                torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
    assert len(compiled.specializations) == 1


def test_another_mask_in_its_place() -> None:
    """The program is for any mask of its shape."""
    model = transformer().eval()
    compiled = hostjit.compile(model, fallback=False)
    source, target = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    mask = CAUSAL.clone()
    with torch.no_grad():
        for shift in (0, 1, 2, 0):
            mask.copy_(CAUSAL.roll(shift, 1))
            mask[:, 0] = 0
            found, expected = (c(source, target, tgt_mask=mask) for c in (compiled, model))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(compiled.specializations) == 1


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_mask_that_needs_a_gradient() -> None:
    """Eager gives none to a mask that is causal."""
    model = transformer()
    compiled = hostjit.compile(model)
    source, target = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    for mask in (CAUSAL.clone(), MASKS["weights"].clone()):
        mask.requires_grad_()
        results = [call(source, target, tgt_mask=mask) for call in (compiled, model)]
        found = [torch.autograd.grad(r.square().sum(), mask, allow_unused=True) for r in results]
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


NORMS: dict[str, Callable[[], nn.Module]] = {
    "1 dim": lambda: nn.BatchNorm1d(3, momentum=None),
    "2 dims": lambda: nn.Sequential(nn.Conv2d(3, 3, 2), nn.BatchNorm2d(3, momentum=None)),
    "not affine": lambda: nn.BatchNorm2d(3, momentum=None, affine=False),
    "not tracked": lambda: nn.BatchNorm2d(3, momentum=None, track_running_stats=False),
}


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_a_batch_norm_over_all_batches(norm: str, gradients: bool, runtime: str) -> None:
    torch.manual_seed(0)
    eager = NORMS[norm]()
    model = NORMS[norm]()
    model.load_state_dict(eager.state_dict())
    compiled = hostjit.compile(model, runtime=runtime, fallback=False)
    with torch.set_grad_enabled(gradients):
        for is_training in (True, True, True, False, True):
            eager.train(is_training)
            model.train(is_training)
            x = torch.randn(4, 3) if norm == "1 dim" else torch.randn(4, 3, 5, 6)
            x = x.requires_grad_() if gradients else x
            found, expected = compiled(x), eager(x)
            torch.testing.assert_close(found, expected)
            if gradients:
                results = [torch.autograd.grad((r**3).sum(), x) for r in (found, expected)]
                torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(model.state_dict(), eager.state_dict())
    assert len(compiled.specializations) == 2


def test_a_momentum_that_is_set_later() -> None:
    model, eager = (nn.BatchNorm1d(3, momentum=None) for _ in range(2))
    compiled = hostjit.compile(model, fallback=False)
    for momentum in (None, None, 0.5, 0.5, None):
        model.momentum = eager.momentum = momentum
        x = torch.randn(4, 3)
        torch.testing.assert_close(compiled(input=x), eager(input=x))
        torch.testing.assert_close(model.state_dict(), eager.state_dict())
    model.reset_running_stats()
    eager.reset_running_stats()
    torch.testing.assert_close(compiled(x), eager(x))
    torch.testing.assert_close(model.state_dict(), eager.state_dict())
    for call in (compiled, eager):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            call(torch.randn(1, 3))
        with pytest.raises(ValueError, match="expected 2D or 3D input"):
            call(torch.randn(1, 3, 4, 5))
    torch.testing.assert_close(model.state_dict(), eager.state_dict())
