"""Positional attention in real models of timm, torchvision and transformers: random weights, small, no download."""

import copy
import io

import pytest
import torch
from torch import nn

from tessella.models.positional_attention import parameter_groups
from tessella.models.positional_scores import held_scores
from tessella.surgery.hosted_attention import hosted, scores_by_layer
from tessella.surgery.replacement import use_positional
from tessella.surgery.timm_seats import attn_layer

pytestmark = pytest.mark.filterwarnings("default")
"""What other libraries warn of is theirs."""

IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
TIMM = {
    "class token": {},
    "class and register tokens without encodings": {"no_embed_class": True, "reg_tokens": 2},
    "no class token": {"class_token": False, "global_pool": "avg"},
    "normalised queries and keys": {"qk_norm": True},
    "layer scale, dropout": {"init_values": 1e-1, "attn_drop_rate": 0.1, "proj_drop_rate": 0.1},
}


def timm_vit(**options):
    pytest.importorskip("timm", reason="the extra [vision] is not installed (timm)")
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 3, "num_classes": 5}
    return VisionTransformer(**{**sizes, **options})


def torchvision_vit():
    pytest.importorskip("torchvision", reason="the extra [vision] is not installed (torchvision)")
    from torchvision.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    return VisionTransformer(16, 4, num_layers=2, num_heads=3, hidden_dim=12, mlp_dim=24, num_classes=5)


def transformers_model(name, **options):
    transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed (transformers)")
    starts = ["ViTMAE", "ViT", "DeiT", "Dinov2WithRegisters", "Dinov2"]
    kind = next(start for start in starts if name.startswith(start)) + "Config"
    sizes = {"image_size": 16, "patch_size": 4, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 24, "num_labels": 5, **options}
    if kind == "ViTMAEConfig":
        sizes |= {"decoder_hidden_size": 8, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
        sizes |= {"decoder_intermediate_size": 16}
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, kind)(**sizes))


TRANSFORMERS = [
    "ViTModel",
    "ViTForImageClassification",
    "DeiTForImageClassificationWithTeacher",
    "Dinov2ForImageClassification",
    "Dinov2Backbone",
    "Dinov2WithRegistersModel",
]
MODELS = {
    **{f"timm, {name}": lambda options=options: timm_vit(**options) for name, options in TIMM.items()},
    "torchvision": torchvision_vit,
    **{f"transformers {name}": lambda name=name: transformers_model(name) for name in TRANSFORMERS},
    "transformers ViTMAEForPreTraining": lambda: transformers_model("ViTMAEForPreTraining"),
}
PARAMETRISATIONS = ["projections", "gram", "matrix"]


@pytest.fixture(params=MODELS)
def make(request):
    return MODELS[request.param]


def output(model, images=IMAGES):
    """The model's main output, with the same masks where it draws some."""
    if "ViTMAE" in type(model).__name__:
        noise = torch.rand(len(images), 16, generator=torch.Generator().manual_seed(3))
        return model(images, noise=noise).logits
    answer = model(images)
    if isinstance(answer, torch.Tensor):
        return answer
    if hasattr(answer, "logits"):
        return answer.logits
    return answer.last_hidden_state if hasattr(answer, "last_hidden_state") else answer.feature_maps[-1]


def weights_of(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_a_swapped_model_trains_a_step_and_round_trips(make, parametrisation):
    model = make()
    replaced = use_positional(model, parametrisation, generator=torch.Generator().manual_seed(1))
    assert set(replaced.modules) == set(hosted(model))
    assert len(replaced) == sum(1 for name in hosted(model))
    before = weights_of(model)
    optimiser = torch.optim.AdamW(parameter_groups(model, 1e-2))
    output(model.train()).square().sum().backward()
    for name, part in hosted(model).items():
        for parameter in (*part.project_values.parameters(), *part.scores.parameters()):
            assert parameter.grad is not None, name
    optimiser.step()
    model.eval()
    after = weights_of(model)
    assert all(any(not torch.equal(before[k], after[k]) for k in after if k.startswith(n)) for n in hosted(model))
    with torch.no_grad():
        expected = output(model)
        again = make()
        use_positional(again, parametrisation)
        again.load_state_dict(model.state_dict())
        torch.testing.assert_close(output(again.eval()), expected)
        torch.testing.assert_close(output(copy.deepcopy(model)), expected)
        if "Backbone" in type(model).__name__:  # transformers' own hooks on it cannot be pickled
            return
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        torch.testing.assert_close(output(torch.load(file, weights_only=False)), expected)


def test_values_outputs_queries_and_keys_keep_their_weights(make):
    model = make()
    vanilla = weights_of(model)
    names = set(vanilla)
    use_positional(model)
    kept = model.state_dict()
    for name in names & set(kept):
        torch.testing.assert_close(kept[name], vanilla[name])
    # A state dict of the vanilla model loads, and changes nothing.
    with torch.no_grad():
        expected = output(model.eval())
        model.load_state_dict(vanilla)
        torch.testing.assert_close(output(model), expected)
    fresh = make()
    use_positional(fresh, queries_and_keys="fresh", generator=torch.Generator().manual_seed(1))
    for name, part in hosted(fresh).items():
        same = hosted(model)[name]
        torch.testing.assert_close(part.project_values.weight, same.project_values.weight)
        assert not torch.equal(part.scores.query.weight, same.scores.query.weight)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_a_vanilla_state_dict_loads_under_every_parametrisation(make, parametrisation):
    model = make()
    vanilla = weights_of(model)
    use_positional(model, parametrisation)
    before = weights_of(model)
    with torch.no_grad():
        for part in hosted(model).values():
            part.project_values.weight.zero_()
    model.load_state_dict(vanilla)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_content_free_queries_and_keys_give_the_vanilla_model_of_one_layer():
    """With patches embedded to zero, the first layer's tokens are the encodings alone, as its scores take them."""
    model = timm_vit(depth=1)
    with torch.no_grad():
        model.patch_embed.proj.weight.zero_()
        model.patch_embed.proj.bias.zero_()
        model.cls_token.zero_()
        model.pos_embed.normal_(generator=torch.Generator().manual_seed(2))
        expected = model.eval()(IMAGES)
        use_positional(model)
        torch.testing.assert_close(model(IMAGES), expected)


def test_positions_are_the_hosts_own_and_followed():
    model = timm_vit()
    use_positional(model)
    assert sum(parameter is model.pos_embed for parameter in model.parameters()) == 1
    model.eval()
    with torch.no_grad():
        before = model(IMAGES)
        model.pos_embed.data.mul_(30)
        changed = model(IMAGES)
        twin = timm_vit()
        use_positional(twin)
        twin.load_state_dict(model.state_dict(), assign=True)
        torch.testing.assert_close(twin.eval()(IMAGES), changed)
        assert not torch.allclose(before, changed)
    assert model.double()(IMAGES.double()).dtype == torch.float64


def test_a_masked_autoencoder_reads_the_positions_that_each_image_kept():
    model = transformers_model("ViTMAEForPreTraining")
    replaced = use_positional(model)
    assert "scores for each" in replaced.notes[0]
    model.eval()
    with torch.no_grad():
        # An encoder whose mask differs gives other scores; an image's own output depends on its own mask only.
        noise = torch.rand(2, 16, generator=torch.Generator().manual_seed(5))
        both = model(IMAGES, noise=noise).logits
        alone = model(IMAGES[1:], noise=noise[1:]).logits
        torch.testing.assert_close(both[1:], alone)
        encoder = next(part for name, part in hosted(model).items() if "decoder" not in name)
        kept = encoder._host[0].kept()
        assert kept.shape == (1, 5)
        assert kept[0].tolist() == [0, *(noise[1].argsort()[:4] + 1).tolist()]
        assert not torch.allclose(both, model(IMAGES, noise=1 - noise).logits)


def test_scores_by_layer_are_the_attention_maps():
    model = timm_vit()
    with pytest.raises(ValueError, match="model: got one without positional attention"):
        scores_by_layer(model)
    use_positional(model, "matrix")
    for scores in scores_by_layer(model).values():
        assert scores.shape == (3, 17, 17)
        torch.testing.assert_close(scores.sum(-1), torch.ones(3, 17))


def test_attn_layer_of_timm_takes_the_class_and_the_vanilla_weights():
    vanilla = timm_vit()
    model = timm_vit(attn_layer=attn_layer(17))
    model.load_state_dict(vanilla.state_dict())
    expected = vanilla.blocks[0].attn.qkv.weight[24:]
    torch.testing.assert_close(model.blocks[0].attn.project_values.weight, expected)
    model(IMAGES).sum().backward()
    assert model.blocks[1].attn.scores.attention.grad.abs().sum() > 0
    model.eval()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for again in (torch.load(file, weights_only=False), copy.deepcopy(model)):
        torch.testing.assert_close(again(IMAGES), model(IMAGES))
    timm = pytest.importorskip("timm")
    made = timm.create_model("vit_tiny_patch16_224", img_size=32, attn_layer=attn_layer(5), depth=1, num_classes=2)
    assert made(torch.zeros(1, 3, 32, 32)).shape == (1, 2)


def test_a_subclass_that_swaps_itself_saves_and_loads_as_transformers_does(tmp_path):
    vanilla = transformers_model("ViTForImageClassification")

    class PositionalViT(type(vanilla)):
        def __init__(self, config):
            super().__init__(config)
            use_positional(self, "matrix")

    model = PositionalViT(vanilla.config).eval()
    with torch.no_grad():
        for part in hosted(model).values():
            part.scores.attention.normal_(generator=torch.Generator().manual_seed(1))
    model.save_pretrained(tmp_path)
    again = PositionalViT.from_pretrained(tmp_path)
    torch.testing.assert_close(output(again.eval()), output(model))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_either_attention_of_transformers_is_replaced(implementation):
    model = transformers_model("ViTModel", attn_implementation=implementation)
    use_positional(model)
    assert output(model).shape == (2, 17, 12)


def refused():
    timm = pytest.importorskip("timm", reason="the extra [vision] is not installed (timm)")
    transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed (transformers)")
    small = {"img_size": 32, "num_classes": 2}
    beit = transformers.BeitConfig(
        image_size=16,
        patch_size=4,
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=8,
        use_relative_position_bias=True,
        use_absolute_position_embeddings=False,
    )
    swin = timm.models.swin_transformer.SwinTransformer
    relative = timm.models.vision_transformer_relpos.VisionTransformerRelPos
    return {
        "windows": swin(**small, patch_size=4, window_size=4, embed_dim=12, depths=(1, 1), num_heads=(1, 1)),
        "relative position biases": relative(
            **small, patch_size=8, embed_dim=12, depth=1, num_heads=3, rel_pos_type="bias"
        ),
        "has relative position biases, and": transformers.BeitModel(beit),
        "no positional encoding": timm_vit(pos_embed="none"),
        "dropped at random": timm_vit(patch_drop_rate=0.5),
        "images of any size": timm_vit(dynamic_img_size=True),
        "no plain attention": timm_vit(attn_layer="diff", depth=1, num_heads=2),
        "holds no ViT that is known": nn.TransformerEncoderLayer(8, 2),
    }


def test_what_cannot_be_done_gets_one_line_and_is_left_untouched():
    for message, model in refused().items():
        before = [(name, id(part)) for name, part in model.named_modules()]
        with pytest.raises(ValueError, match=message) as raised:
            use_positional(model)
        assert "\n" not in str(raised.value)
        assert [(name, id(part)) for name, part in model.named_modules()] == before


def test_a_half_known_model_is_left_untouched():
    model = nn.ModuleList([timm_vit(), timm_vit(pos_embed="none")])
    with pytest.raises(ValueError, match="no positional encoding"):
        use_positional(model)
    assert not hosted(model)
    twice = timm_vit()
    use_positional(twice)
    with pytest.raises(ValueError, match="got one that has positional attention"):
        use_positional(twice)


def test_attention_masks_and_other_sizes_are_refused():
    model = timm_vit()
    use_positional(model)
    with pytest.raises(ValueError, match="attention mask: got one, expected none"):
        model.blocks[0](torch.zeros(1, 17, 12), attn_mask=torch.ones(17, 17))
    with pytest.raises(ValueError, match="tokens: got 5, expected 17"):
        model.blocks[0](torch.zeros(1, 5, 12))


def test_held_scores_serve_a_swapped_model():
    model = torchvision_vit()
    use_positional(model, "matrix")
    model.eval()
    with torch.inference_mode(), held_scores(model):
        first = model(IMAGES)
        torch.testing.assert_close(model(IMAGES), first)


def test_attention_maps_are_the_callers_own():
    model = timm_vit().eval()
    use_positional(model)
    with torch.no_grad():
        before = model(IMAGES)
        for scores in scores_by_layer(model).values():
            scores.zero_()
        for part in hosted(model).values():
            part.current_scores().data.zero_()
        torch.testing.assert_close(model(IMAGES), before)


def test_two_seats_with_one_attention_are_refused_and_left_as_they_were():
    model = timm_vit()
    model.blocks[1].attn = model.blocks[0].attn
    with pytest.raises(ValueError, match=r"model: blocks.0.attn and blocks.1.attn are one module, expected one each"):
        use_positional(model)
    assert model.blocks[1].attn is model.blocks[0].attn
    assert not hosted(model)
