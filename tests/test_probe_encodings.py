"""Encodings read as what they are, against what the models themselves do with them."""

import pytest
import torch
from probe_models import images, timm_model, transformers_model
from test_locality import sin_cos

import tessella
from tessella import Extent, ViT, ViTShape
from tessella.probe.attention_calls import watched
from tessella.probe.encoding_measures import measures
from tessella.probe.locality import cosines
from tessella.probe.positional_encodings import read
from tessella.probe.token_places import places
from tessella.probe.tower import tower

pytestmark = pytest.mark.filterwarnings("default")
"""What other libraries warn of is theirs."""

QUICK = Extent(output_images=0, chance_images=1)


def encodings(model, height=32, width=32):
    return tessella.inspect(model, images(2, height, width), extent=QUICK).encodings


def test_learned_encodings_are_those_of_patches_without_the_prefix():
    for name, before in (("vit_tiny_patch16_224", 1), ("deit_tiny_distilled_patch16_224", 2)):
        model = timm_model(name, (24, 40))
        found = encodings(model, 24, 40)
        assert (found.kind, found.grid) == ("learned", (3, 5))
        torch.testing.assert_close(found.similarities, cosines(model.pos_embed[0, before:]).detach())
        assert found.others == ()
    registers = timm_model("vit_small_patch14_reg4_dinov2", (32, 32))
    torch.testing.assert_close(encodings(registers).similarities, cosines(registers.pos_embed[0, -16:]).detach())


def test_encodings_of_another_image_size_are_compared_as_the_model_has_them():
    model = transformers_model("Dinov2Model", 32)
    found = encodings(model, 24, 40)
    assert (found.kind, found.grid) == ("learned", (4, 4))
    assert "the model resizes them from 4 x 4 to 3 x 5" in found.note
    own = model.embeddings.position_embeddings[0, 1:]
    torch.testing.assert_close(found.similarities, cosines(own).detach())


def test_encodings_that_lie_on_the_grid_are_read():
    timm = pytest.importorskip("timm", reason="the extra [vision] is not installed (timm)")
    for name, last in (("pit_ti_distilled_224", False), ("volo_d1_224", True)):
        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False, img_size=64).eval()
        found = encodings(model, 64, 64)
        on_grid = model.pos_embed[0] if last else model.pos_embed[0].permute(1, 2, 0)
        assert (found.kind, found.grid) == ("learned", tuple(on_grid.shape[:2]))
        torch.testing.assert_close(found.similarities, cosines(on_grid.flatten(0, 1)).detach())


def test_sines_and_cosines_are_known_by_their_values_and_chance_keeps_them():
    model = transformers_model("ViTMAEModel", 32)
    model.embeddings.position_embeddings.data[0, 1:] = sin_cos(4, 4, 6)
    found = encodings(model)
    assert found.kind == "sin-cos"
    assert found.measures["locality"] == 1.0
    assert found.chance == found.measures
    assert "with random weights they are the same" in found.note


def test_relative_biases_are_what_attention_adds():
    for model in (timm_model("beit_base_patch16_224", (24, 40)), transformers_model("BeitModel", (24, 40))):
        looked_at, biases = tower(model), []
        with looked_at.reading():
            layers, _ = places(looked_at, images(1, 24, 40))
            with watched(looked_at.model, lambda call, kept=biases: kept.append(call.bias)):
                looked_at(images(1, 24, 40))
            found = read(looked_at.model, layers)[0]
        assert found.kind == "relative bias"
        for index, bias in enumerate(biases):
            torch.testing.assert_close(found.by_layer[index], bias[0, :, 1:, 1:])
            assert float(bias.abs().max()) > 0.1
        mean = torch.stack(biases).mean((0, 1, 2))[1:, 1:]
        torch.testing.assert_close(found.similarities, mean)


def test_a_resized_table_of_transformers_beit_is_the_one_that_acts():
    model = transformers_model("BeitModel", 32)
    looked_at, biases, given = tower(model), [], images(1, 24, 40)
    with looked_at.reading():
        layers, _ = places(looked_at, given)
        with watched(looked_at.model, lambda call: biases.append(call.bias)):
            looked_at(given)
        found = read(looked_at.model, layers)[0]
    torch.testing.assert_close(found.by_layer[0], biases[0][0, :, 1:, 1:])


def test_tables_of_windows_have_the_windows_grid():
    model = timm_model("swin_tiny_patch4_window7_224", (32, 48))
    found = encodings(model, 32, 48)
    assert (found.kind, found.grid) == ("relative bias", (4, 4))
    block = model.layers[0].blocks[0].attn
    index = block.relative_position_index
    expected = block.relative_position_bias_table[index.flatten()].view(16, 16, -1)
    assert found.similarities.shape == (16, 16)
    heads = [each.attn for stage in model.layers for each in stage.blocks]
    means = [part.relative_position_bias_table[index.flatten()].view(16, 16, -1).mean(-1) for part in heads]
    torch.testing.assert_close(means[0], expected.mean(-1))
    torch.testing.assert_close(found.similarities, torch.stack(means).mean(0).detach())


def test_rotary_similarities_are_what_turning_does_to_equal_tokens():
    from timm.layers import apply_rot_embed_cat

    model = timm_model("vit_small_patch16_rope_224", (24, 40))
    turned = model.rope.get_embed(shape=[3, 5])
    size = turned.shape[-1] // 2
    # Tokens that are equal, and have the same length in every plane that is turned.
    token = torch.ones(1, 1, 15, size)
    same = apply_rot_embed_cat(token, turned, half=getattr(model.blocks[0].attn, "rotate_half", False))[0, 0]
    found = encodings(model, 24, 40)
    assert (found.kind, found.others) == ("rotary", ())
    torch.testing.assert_close(found.similarities, cosines(same), atol=1e-5, rtol=1e-5)


def test_a_rotary_eva_has_learned_encodings_beside():
    model = timm_model("eva02_tiny_patch14_224", (32, 32))
    found = encodings(model)
    assert [found.kind, *(other.kind for other in found.others)] == ["rotary", "learned"]
    assert found.chance == found.measures
    torch.testing.assert_close(found.others[0].similarities, cosines(model.pos_embed[0, 1:]).detach())
    assert found.others[0].chance != found.others[0].measures


def test_models_without_encodings_say_so():
    positional = ViT(ViTShape(image=32, patch=8, dim=12, depth=1, heads=3), "matrix", added=False)
    found = encodings(positional)
    assert (found.kind, found.similarities, found.measures) == ("none", None, {})
    assert "act through attention scores alone" in found.note
    swin = timm_model("swinv2_tiny_window8_256", (32, 32))
    assert "no place has an encoding" in encodings(swin).note
    seen = tessella.inspect(positional, images(2, 32, 32), extent=QUICK)
    assert "agreement with encodings" not in seen.measures


def test_encodings_of_this_projects_vit_are_read():
    model = ViT(ViTShape(image=32, patch=8, dim=12, depth=1, heads=3, registers=1))
    found = encodings(model)
    assert found.kind == "learned"
    torch.testing.assert_close(found.similarities, cosines(model.positions[2:]).detach())
    assert tessella.inspect(model, images(1, 32, 32), extent=QUICK).prefix == ("class", "register")


def test_sin_cos_encodings_decay_with_distance_and_random_ones_do_not():
    local = measures(cosines(sin_cos(6, 6)), (6, 6))
    assert local["locality"] == 1.0
    assert local["decay with distance"] > 0.8
    random = measures(cosines(torch.randn(36, 64, generator=torch.Generator().manual_seed(0))), (6, 6))
    assert abs(random["decay with distance"]) < 0.15
    assert random["Rand index"] < 0.2
