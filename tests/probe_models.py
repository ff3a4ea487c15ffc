"""Small models of other libraries with random weights, and the attention that each library gives itself, unfused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

Attention = list[Tensor]

TIMM = (
    "vit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "vit_small_patch14_reg4_dinov2",
    "vit_base_patch16_clip_224",
    "beit_base_patch16_224",
    "eva02_tiny_patch14_224",
    "vit_small_patch16_rope_224",
)
TRANSFORMERS = {
    "ViTModel": "ViTConfig",
    "DeiTModel": "DeiTConfig",
    "ViTMAEModel": "ViTMAEConfig",
    "Dinov2Model": "Dinov2Config",
    "Dinov2WithRegistersModel": "Dinov2WithRegistersConfig",
    "BeitModel": "BeitConfig",
    "CLIPVisionModel": "CLIPVisionConfig",
}


def timm_model(name: str, size: tuple[int, int], **options: Any) -> nn.Module:
    timm = pytest.importorskip("timm", reason="the extra [vision] is not installed (timm)")
    torch.manual_seed(0)
    if "swin" in name:
        sizes: dict[str, Any] = {"embed_dim": 12, "depths": (2, 2), "num_heads": (1, 2)}
        sizes |= {"patch_size": 2, "window_size": 4}
    else:
        sizes = {"embed_dim": 24, "depth": 2, "num_heads": 3, "patch_size": 8}
    return livened(timm.create_model(name, pretrained=False, img_size=size, num_classes=5, **sizes, **options))


def transformers_model(name: str, size: tuple[int, int] | int, **options: Any) -> nn.Module:
    transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed (transformers)")
    sizes: dict[str, Any] = {"image_size": size, "patch_size": 8, "hidden_size": 24, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 3, "intermediate_size": 32}
    if name == "BeitModel":
        sizes["use_relative_position_bias"] = True
    torch.manual_seed(0)
    config = getattr(transformers, TRANSFORMERS[name])(**sizes, **options)
    return livened(getattr(transformers, name)(config))


def torchvision_model(side: int = 32) -> nn.Module:
    pytest.importorskip("torchvision", reason="the extra [vision] is not installed (torchvision)")
    from torchvision.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    made = VisionTransformer(side, 8, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=32, num_classes=5)
    return livened(made)


def livened(model: nn.Module) -> nn.Module:
    """Larger random weights: attention that is far from uniform, relative biases that are not zero."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and parameter.requires_grad:
            wide = 0.5 if "table" in name else 0.2
            parameter.data += wide * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def timm_attention(model: nn.Module, images: Tensor) -> Attention:
    """timm's own, with its fused attention switched off."""
    found: Attention = []
    switched = [part for part in model.modules() if getattr(part, "fused_attn", False)]
    drops = [part for name, part in model.named_modules() if name.endswith("attn_drop")]
    for part in switched:
        part.fused_attn = False
    hooks = [part.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for part in drops]
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    for part in switched:
        part.fused_attn = True
    return found


def transformers_attention(model: Any, images: Tensor, **named: Any) -> Attention:
    """What transformers returns for `output_attentions` in its eager mode."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = list(model(pixel_values=images, output_attentions=True, **named).attentions)
    model.set_attn_implementation("sdpa")
    return found


def torchvision_attention(model: nn.Module, images: Tensor) -> Attention:
    """What torch's own module returns when its weights are asked for."""
    found: Attention = []

    def asked(module: nn.MultiheadAttention, inputs: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        if not named.get("need_weights"):
            found.append(module(*inputs, need_weights=True, average_attn_weights=False)[1])

    hooks = [
        part.register_forward_pre_hook(asked, with_kwargs=True)
        for part in model.modules()
        if isinstance(part, nn.MultiheadAttention)
    ]
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return found


Maker = Callable[[], tuple[nn.Module, Tensor, Attention]]


def images(count: int, height: int, width: int) -> Tensor:
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(0))


def _timm(name: str, height: int, width: int) -> Maker:
    def make() -> tuple[nn.Module, Tensor, Attention]:
        model, given = timm_model(name, (height, width)), images(3, height, width)
        return model, given, timm_attention(model, given)

    return make


def _transformers(name: str, height: int, width: int) -> Maker:
    def make() -> tuple[nn.Module, Tensor, Attention]:
        given, named = images(3, height, width), {}
        # CLIP and DINOv2 are made for squares and stretch their encodings; the others know of other shapes.
        stretched = name.startswith(("CLIP", "Dinov2"))
        model: Any = transformers_model(name, 32 if stretched or height == width else (height, width))
        if name == "ViTMAEModel":
            model.config.mask_ratio = 0.0
            named["noise"] = torch.arange(height * width // 64).expand(3, -1).float()
        if name == "CLIPVisionModel" and height != width:
            named["interpolate_pos_encoding"] = True
        return model, given, transformers_attention(model, given, **named)

    return make


def _torchvision() -> tuple[nn.Module, Tensor, Attention]:
    model, given = torchvision_model(), images(3, 32, 32)
    return model, given, torchvision_attention(model, given)


MODELS: dict[str, Maker] = {
    **{f"timm {name}": _timm(name, 32, 32) for name in TIMM},
    **{f"timm {name}, not square": _timm(name, 24, 40) for name in TIMM},
    "timm swin_tiny_patch4_window7_224": _timm("swin_tiny_patch4_window7_224", 32, 32),
    "timm swin_tiny_patch4_window7_224, not square": _timm("swin_tiny_patch4_window7_224", 32, 48),
    **{f"transformers {name}": _transformers(name, 32, 32) for name in TRANSFORMERS},
    **{f"transformers {name}, not square": _transformers(name, 24, 40) for name in TRANSFORMERS},
    "torchvision": _torchvision,
}
