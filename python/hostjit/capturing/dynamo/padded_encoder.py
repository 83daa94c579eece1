# SPDX-License-Identifier: Apache-2.0
"""`nn.TransformerEncoder` where it leaves out padding.

Eager inference makes a nested tensor of what a mask leaves, and puts zeros in the place of the rest
behind the last layer. It reads the mask for that, and does not where it is compiled: padded rows
would have other values then.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo import exc

__all__ = ["encoder_for"]


def encoder(
    self: nn.TransformerEncoder,
    src: Tensor,
    mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
) -> Tensor:
    """`forward` of an encoder that is given a mask of padding, of a float dtype or of booleans."""
    assert src_key_padding_mask is not None
    padding = nn.functional._canonical_mask(
        mask=src_key_padding_mask,
        mask_name="src_key_padding_mask",
        other_type=nn.functional._none_or_dtype(mask),
        other_name="mask",
        target_type=src.dtype,
    )
    mask = nn.functional._canonical_mask(
        mask=mask,
        mask_name="mask",
        other_type=None,
        other_name="",
        target_type=src.dtype,
        check_other=False,
    )
    first: Any = self.layers[0]
    length = nn.modules.transformer._get_seq_len(src, first.self_attn.batch_first)
    left_out = None
    if mask is None and src.dim() == 3 and _may_leave_out(self):
        parameters = tuple(_parameters(first))
        needs_gradients = torch.is_grad_enabled() and (
            src.requires_grad or any(p.requires_grad for p in parameters)
        )
        if not (needs_gradients or torch.overrides.has_torch_function((src, *parameters))):
            assert padding is not None
            left_out = _left_out(padding, getattr(self, "mask_check", True))
            if not getattr(self, "mask_check", True):
                padding = left_out
            src = src.masked_fill(left_out.unsqueeze(-1), 0.0)  # in case that there is NaN
    causal = nn.modules.transformer._detect_is_causal_mask(mask, is_causal, length)
    output = src
    for layer in self.layers:
        output = layer(output, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
    if left_out is not None:
        output = output.masked_fill(left_out.unsqueeze(-1), 0.0)
    return output if self.norm is None else self.norm(output)


def encoder_for(args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return `encoder` for a call of `nn.TransformerEncoder.forward` with a mask of padding.

    Raises:
        Unsupported: layers would see the nested tensor, and do something else with it.
    """
    module = getattr(args[0], "value", None)
    padding = args[3] if len(args) > 3 else kwargs.get("src_key_padding_mask")
    if not isinstance(module, nn.TransformerEncoder):
        return None
    if padding is None or padding.is_python_constant():
        return None
    needs_gradients = torch.is_grad_enabled() and any(
        parameter.requires_grad for parameter in _parameters(module.layers[0])
    )
    if (
        _may_leave_out(module)
        and not needs_gradients
        and not all(_is_one_operator(layer) for layer in module.layers)
    ):
        exc.unimplemented(
            gb_type="nested tensors in a transformer encoder",
            context=str(type(module).__name__),
            explanation="The encoder leaves out padding, and has hooks or layers that see it.",
            hints=[],
        )
    return encoder


def _may_leave_out(encoder: nn.TransformerEncoder) -> bool:
    """Whether there is nothing about the module that is against it."""
    return bool(
        torch.backends.mha.get_fastpath_enabled()
        and getattr(encoder, "use_nested_tensor", False)
        and not encoder.layers[0].training
        and not torch.is_autocast_enabled()
    )


def _left_out(padding: Tensor, must_be_left_aligned: bool) -> Tensor:
    """Which elements of all sequences are: bool, of the shape of `padding`."""
    kept = padding.logical_not()
    torch._assert_async(
        kept.any(), "to_padded_tensor: at least one constituent tensor should have non-zero numel"
    )
    if must_be_left_aligned:
        gaps = kept[:, 1:] & padding[:, :-1].to(torch.bool)
        return kept.logical_or(gaps.any()).logical_not()
    # Eager believes that it is, and takes as many of the first as the mask keeps.
    return torch.arange(padding.shape[1], device=padding.device) >= kept.sum(1, keepdim=True)


def _is_one_operator(layer: nn.Module) -> bool:
    """Whether eager runs the layer as one operator, which takes nested tensors."""
    return (
        isinstance(layer, nn.TransformerEncoderLayer)
        and type(layer).forward is nn.TransformerEncoderLayer.forward
        and not layer.training
        and layer.self_attn.batch_first
        and layer.self_attn._qkv_same_embed_dim
        and layer.self_attn.in_proj_bias is not None
        and layer.self_attn.num_heads % 2 == 0
        and layer.activation_relu_or_gelu != 0
        and layer.norm1.eps == layer.norm2.eps
        and not any(m._forward_hooks or m._forward_pre_hooks for m in layer.modules())
        and not (torch.is_grad_enabled() and any(p.requires_grad for p in _parameters(layer)))
    )


def _parameters(layer: Any) -> list[Tensor]:
    attention = layer.self_attn
    modules = (attention.out_proj, layer.norm1, layer.norm2, layer.linear1, layer.linear2)
    found = [attention.in_proj_weight, attention.in_proj_bias]
    found += [p for module in modules for p in (module.weight, module.bias)]
    return [parameter for parameter in found if parameter is not None]
