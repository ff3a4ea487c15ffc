"""What is seen of attention is what each library gives itself, and looking changes nothing."""

import pytest
import torch
from probe_models import MODELS, images, timm_model, torchvision_model
from torch import nn

import tessella
from tessella.probe.attention_calls import Call, watched
from tessella.probe.inspecting import Extent
from tessella.probe.tower import tower

pytestmark = pytest.mark.filterwarnings("default")
"""What other libraries warn of is theirs."""

QUICK = Extent(output_images=0, chance_images=1)


@pytest.fixture(scope="module", params=MODELS)
def known(request):
    return MODELS[request.param]()


def test_attention_seen_is_the_librarys_own(known):
    model, given, expected = known
    seen = tessella.inspect(model, given, extent=QUICK)
    assert len(seen.layers) == len(expected)
    for number, (layer, own) in enumerate(zip(seen.layers, expected, strict=True)):
        by_image = own.unflatten(0, (len(given), layer.windows)).mean(1)
        torch.testing.assert_close(layer.mean_attention, by_image.mean(0), atol=2e-6, rtol=1e-4)
        for example, single in zip(seen.examples, by_image, strict=True):
            torch.testing.assert_close(example.attention[number].float(), single, atol=1e-3, rtol=1e-3)
        assert float(own.std(-1).max()) > 1e-3  # far enough from uniform for a mistake to show


def test_looking_changes_no_bit_of_the_output(known):
    model, given, _ = known
    looked_at = tower(model)
    calls: list[Call] = []
    with looked_at.reading():
        plain = looked_at(given)
        with watched(looked_at.model, calls.append):
            watching = looked_at(given)
        after = looked_at(given)
    assert calls
    assert torch.equal(plain, watching)
    assert torch.equal(plain, after)


def test_a_model_is_left_in_training_mode_with_its_forward_its_own():
    model = torchvision_model().train()
    before = dict(model.state_dict())
    tessella.inspect(model, images(2, 32, 32), extent=QUICK)
    assert all(part.training for part in model.modules())
    assert not any("forward" in vars(part) or part._forward_hooks for part in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_tokens_are_told_apart():
    expected = {
        "vit_tiny_patch16_224": ("class",),
        "deit_tiny_distilled_patch16_224": ("class", "distillation"),
        "vit_small_patch14_reg4_dinov2": ("class", "register 1", "register 2", "register 3", "register 4"),
        "swin_tiny_patch4_window7_224": (),
    }
    for name, prefix in expected.items():
        seen = tessella.inspect(timm_model(name, (32, 48)), images(1, 32, 48), extent=QUICK)
        assert seen.prefix == prefix
        patch = 2 if "swin" in name else 8
        assert (seen.grid, seen.patch) == ((32 // patch, 48 // patch), (patch, patch))


def test_windows_are_counted_and_patches_merge_between_stages():
    seen = tessella.inspect(timm_model("swin_tiny_patch4_window7_224", (32, 48)), images(1, 32, 48), extent=QUICK)
    assert [(layer.grid, layer.patch, layer.windows) for layer in seen.layers] == [
        ((4, 4), (2, 2), 24),
        ((4, 4), (2, 2), 24),
        ((4, 4), (4, 4), 6),
        ((4, 4), (4, 4), 6),
    ]


class Unfused(nn.Module):
    """A model of nobody's: attention written by hand, patches that are wide, no class token."""

    def __init__(self):
        super().__init__()
        self.patches, self.qkv = nn.Conv2d(3, 6, (4, 8), (4, 8)), nn.Linear(6, 18)
        self.given = []

    def forward(self, pixels):
        tokens = self.patches(pixels).flatten(2).transpose(1, 2)
        queries, keys, values = self.qkv(tokens).unflatten(-1, (3, 2, 3)).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(queries @ keys.transpose(-1, -2), dim=3)
        self.given.append(weights)
        return torch.matmul(weights, values).mean((1, 2))


def test_a_model_of_nobodys_with_wide_patches_is_read_and_has_no_encodings():
    torch.manual_seed(0)
    model = Unfused()
    seen = tessella.inspect(model, images(2, 16, 16), extent=Extent(output_images=0, chance_images=1, batch=2))
    assert (seen.grid, seen.patch, seen.prefix) == ((4, 2), (4, 8), ())
    torch.testing.assert_close(seen.layers[0].mean_attention, model.given[-1].mean(0).detach(), atol=1e-6, rtol=1e-5)
    assert seen.encodings.kind == "none"
    assert "no encoding" in seen.encodings.note


class Mixed(Unfused):
    """Between softmax and product the weights change: to the mean of two softmaxes, or to what sums to two."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def forward(self, pixels):
        tokens = self.patches(pixels).flatten(2).transpose(1, 2)
        queries, keys, values = self.qkv(tokens).unflatten(-1, (3, 2, 3)).permute(2, 0, 3, 1, 4)
        content = (queries @ keys.transpose(-1, -2)).softmax(-1)
        self.given.append(self.last(content, torch.eye(keys.shape[2]).expand_as(content).softmax(-1)))
        return (self.given[-1] @ values).mean((1, 2))


def test_weights_that_change_after_the_softmax_are_read_as_they_act_or_refused():
    torch.manual_seed(0)
    model = Mixed(lambda content, place: (content + place) / 2)
    seen = tessella.inspect(model, images(2, 16, 16), extent=Extent(output_images=0, chance_images=1, batch=2))
    torch.testing.assert_close(seen.layers[0].mean_attention, model.given[-1].mean(0).detach(), atol=1e-6, rtol=1e-5)
    for last in (lambda content, place: content + place, lambda content, place: 2 * content - place):
        with pytest.raises(ValueError, match=r"^model: its attention changes its weights after the softmax"):
            tessella.inspect(Mixed(last), images(2, 16, 16), extent=QUICK)


def test_timms_attention_of_another_kind_is_read_as_it_acts_or_refused():
    timm = pytest.importorskip("timm", reason="the extra [vision] is not installed (timm)")

    def made(name, side, **sizes):
        torch.manual_seed(0)
        return timm.create_model(name, pretrained=False, img_size=side, **sizes).eval()

    small = {"patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    convit = made("convit_tiny", 32, local_up_to_layer=1, **small)
    weights = []
    gated = convit.blocks[0].attn
    hook = gated.attn_drop.register_forward_pre_hook(lambda _, inputs: weights.append(inputs[0]))
    seen = tessella.inspect(convit, images(2, 32, 32), extent=QUICK)
    hook.remove()
    assert [layer.prefix for layer in seen.layers] == [(), ("class",)]
    torch.testing.assert_close(seen.layers[0].mean_attention, weights[-1].mean(0), atol=1e-6, rtol=1e-5)
    with pytest.raises(ValueError, match=r"^model: blocks.0.attn changes its weights after the softmax"):
        tessella.inspect(made("cait_xxs24_224", 32, depth_token_only=1, **small), images(1, 32, 32), extent=QUICK)
    maxvit = timm.create_model("maxvit_rmlp_pico_rw_256", pretrained=False, img_size=64).eval()
    with pytest.raises(ValueError, match=r"attn_grid.attn attends among 4 tokens in 64 windows, which are not known"):
        tessella.inspect(maxvit, images(1, 64, 64), extent=QUICK)
    davit = timm.create_model("davit_tiny", pretrained=False).eval()
    with pytest.raises(ValueError, match=r"attends among 32 tokens, not the 16 x 16 patches of the image"):
        tessella.inspect(davit, images(1, 64, 64), extent=QUICK)


def test_models_that_cannot_be_read_say_why():
    with pytest.raises(ValueError, match=r"^model: no self-attention was seen to run in Sequential; expected softmax"):
        tessella.inspect(nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.Flatten()), images(1, 16, 16))
    with pytest.raises(ValueError, match=r"^images: got 18 x 16 pixels, which do not divide into patches of 4 x 8"):
        tessella.inspect(Unfused(), images(1, 18, 16))
    with pytest.raises(ValueError, match=r"^model: it does not take images of 24 x 24 pixels: "):
        tessella.inspect(timm_model("vit_tiny_patch16_224", (32, 32)), images(1, 24, 24))
    scripted = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"^model: got TorchScript"):
        tessella.inspect(scripted, images(1, 16, 16))
