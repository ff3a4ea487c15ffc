"""Positional attention compiled without a graph break, alone and in other libraries' models."""

from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from tessella.models.positional_mixing import mix
from tessella.models.positional_scores import held_scores
from tessella.models.vit import ViT, ViTShape

pytestmark = pytest.mark.filterwarnings("default")
"""What the compiler warns of is its own."""

SHAPE = ViTShape(image=8, patch=4, dim=12, depth=2, heads=3, hidden=16, registers=1)
IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def shapes_unchecked() -> Iterator[None]:
    """The run-time checker of shapes is no code that torch.compile could read; users run without it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    torch._dynamo.reset()
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("attention", ["projections", "matrix"])
def test_compiled_without_a_graph_break_outputs_and_gradients_are_equal(attention):
    model = ViT(SHAPE, attention)
    # "aot_eager" traces forward and backward as the default backend does, and leaves out its code generation.
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(IMAGES), model(IMAGES))
    parameters = list(model.parameters())
    got = torch.autograd.grad(compiled(IMAGES).square().sum(), parameters)
    expected = torch.autograd.grad(model(IMAGES).square().sum(), parameters)
    torch.testing.assert_close(got, expected)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(IMAGES), model(IMAGES))
        for parameter in model.parameters():
            parameter.data.mul_(1.5)
        torch.testing.assert_close(compiled(IMAGES), model(IMAGES))


def test_the_default_backend_compiles_the_operator():
    compiled = torch.compile(lambda s, v: mix(torch.softmax(s, -1), v) * 2, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 5, 5, generator=generator, requires_grad=True)
    values = torch.randn(2, 5, 3, 4, generator=generator)
    expected = mix(torch.softmax(scores, -1), values) * 2
    got = compiled(scores, values)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(
        torch.autograd.grad(got.square().sum(), scores), torch.autograd.grad(expected.square().sum(), scores)
    )


def test_held_scores_are_a_constant_of_compiled_code():
    model = ViT(SHAPE, "matrix").eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        with held_scores(model):
            held = model(IMAGES)
            model.blocks[0].attention.scores.attention.mul_(-2)
            torch.testing.assert_close(compiled(IMAGES), held)
        assert not torch.allclose(compiled(IMAGES), held)


@pytest.mark.parametrize("library", ["timm", "transformers", "torchvision"])
def test_a_swapped_model_compiles_without_a_graph_break(library):
    pytest.importorskip(library, reason=f"{library} is not installed (the extras [vision] and [hf] bring it)")
    from tessella.surgery.replacement import use_positional

    model = MAKE[library]()
    use_positional(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    expected, got = model(images), compiled(images)
    if library == "transformers":
        expected, got = expected.logits, got.logits
    torch.testing.assert_close(got, expected)
    got.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def _timm() -> torch.nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(img_size=16, patch_size=4, embed_dim=12, depth=2, num_heads=3, num_classes=5)


def _torchvision() -> torch.nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(16, 4, num_layers=2, num_heads=3, hidden_dim=12, mlp_dim=24, num_classes=5)
    torch.nn.init.normal_(model.heads.head.weight)
    return model


def _transformers() -> torch.nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 24}
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, num_labels=5, **sizes))


MAKE = {"timm": _timm, "transformers": _transformers, "torchvision": _torchvision}
