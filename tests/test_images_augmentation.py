"""Augmentation: each image has draws of its own, and each operation is what torchvision has by that name."""

import dataclasses
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tessella.images import colour, geometry, mixing
from tessella.images.augmentation import NONE, Augmentation, Augmenter
from tessella.images.randaugment import OPERATIONS, Draw

functional = pytest.importorskip("torchvision.transforms.v2.functional")

MEAN, STD = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.25, 0.2, 0.3])
ALL = Augmentation(
    resized=0.5,
    rotate=10,
    translate=0.1,
    zoom=0.1,
    shear=0.1,
    brightness=0.2,
    contrast=0.2,
    saturation=0.2,
    randaugment=2,
    erasing=0.5,
    mixup=0.8,
    cutmix=1.0,
    smoothing=0.1,
    repeats=2,
)


def photographs(batch: int = 6, side: int = 16, seed: int = 0) -> Tensor:
    """Smooth bytes with some noise, unlike each other in brightness."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, 3, 4, 4, generator=generator) * torch.linspace(0.3, 1, batch)[:, None, None, None]
    smooth = torch.nn.functional.interpolate(coarse, side, mode="bilinear")
    noisy = smooth * 240 + 15 * torch.rand(batch, 3, side, side, generator=generator)
    return noisy.to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def floats(images: Tensor) -> Tensor:
    return images.permute(0, 3, 1, 2).float()


def augmenter(augmentation: Augmentation, classes: int = 10, size: int = 16) -> Augmenter:
    return Augmenter(augmentation, MEAN, STD, classes, size)


def undone(images: Tensor) -> Tensor:
    """Bytes from normalised images."""
    return ((images * STD[:, None, None] + MEAN[:, None, None]) * 255).round()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


CHANGES = {
    "crop": Augmentation(crop=4, flip=False),
    "flip": Augmentation(crop=0, flip=True),
    "resized": dataclasses.replace(NONE, resized=0.2),
    "rotate": dataclasses.replace(NONE, rotate=30),
    "translate": dataclasses.replace(NONE, translate=0.3),
    "zoom": dataclasses.replace(NONE, zoom=0.4),
    "shear": dataclasses.replace(NONE, shear=0.3),
    "brightness": dataclasses.replace(NONE, brightness=0.5),
    "contrast": dataclasses.replace(NONE, contrast=0.5),
    "saturation": dataclasses.replace(NONE, saturation=0.5),
    "randaugment": dataclasses.replace(NONE, randaugment=2),
    "erasing": dataclasses.replace(NONE, erasing=1.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_image_of_a_batch_has_a_draw_of_its_own(name: str) -> None:
    same = photographs(1).expand(64, -1, -1, -1)
    changed, _ = augmenter(CHANGES[name])(same, torch.zeros(64, dtype=torch.int64), generator())
    different = len(torch.unique(changed.flatten(1), dim=0))
    assert different == 2 if name == "flip" else different > 16


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_each_image_is_mixed_in_its_own_proportion(name: str) -> None:
    images, labels = photographs(64), torch.arange(64)
    made = augmenter(dataclasses.replace(NONE, **{name: 1.0}), classes=64)
    _, targets = made(images, labels, generator())
    assert len(torch.unique(targets[labels, labels])) > 32


@pytest.mark.parametrize("wanted", [Augmentation(), ALL])
def test_one_seed_gives_one_result(wanted: Augmentation) -> None:
    images, labels = photographs(), torch.arange(6)
    made = augmenter(wanted)
    first, again, other = (made(images, labels, generator(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


def test_the_default_generator_is_used_where_none_is_given() -> None:
    images, labels = photographs(), torch.arange(6)
    made = augmenter(ALL)
    torch.manual_seed(3)
    first, _ = made(images, labels)
    torch.manual_seed(3)
    again, _ = made(images, labels)
    assert torch.equal(first, again)


def test_nothing_on_is_what_evaluation_sees() -> None:
    images = photographs()
    made = augmenter(NONE)
    changed, targets = made(images, torch.arange(6))
    assert torch.equal(changed, made.plain(images))
    expected = functional.normalize(functional.to_dtype(floats(images) / 255), MEAN.tolist(), STD.tolist())
    torch.testing.assert_close(changed, expected, atol=2e-6, rtol=1e-5)
    assert torch.equal(targets, torch.eye(10)[:6])


@given(down=st.integers(-20, 20), right=st.integers(-20, 20), flipped=st.booleans())
def test_a_crop_is_torchvisions_of_the_padded_image(down: int, right: int, flipped: bool) -> None:
    images = photographs(2)
    made = geometry.crop_and_flip(images, torch.full((2,), down), torch.full((2,), right), torch.full((2,), flipped))
    cropped = functional.crop(functional.pad(floats(images), [20]), 20 + down, 20 + right, 16, 16)
    assert torch.equal(floats(made), functional.hflip(cropped) if flipped else cropped)


def test_half_of_the_images_are_mirrored_and_shifts_are_uniform() -> None:
    ramp = torch.arange(16).expand(9000, 16, 16)
    images = torch.stack((ramp * 8 + 100, ramp.mT * 8 + 100, ramp * 0), dim=-1).to(torch.uint8)
    changed = undone(augmenter(Augmentation(crop=4))(images, torch.zeros(9000, dtype=torch.int64), generator())[0])
    flipped = changed[:, 0, 8, 8] < changed[:, 0, 8, 7]
    assert abs(flipped.float().mean() - 0.5) < 0.025  # 4.7 standard errors
    down = ((changed[:, 1, 8, 8] - 100) / 8 - 8).long()
    assert torch.equal(down.unique(), torch.arange(-4, 5))
    assert (torch.bincount(down + 4) / 9000 - 1 / 9).abs().max() < 0.016


@pytest.mark.parametrize(
    ("maps", "parameters"),
    [
        (geometry.rotation(torch.tensor([20.0])), {"angle": 20.0}),
        (geometry.shift(torch.tensor([2 * 3 / 16]), torch.tensor([-2 * 5 / 16])), {"translate": [-3, 5]}),
        (geometry.stretch(torch.tensor([1 / 1.3]), torch.tensor([1 / 1.3])), {"scale": 1.3}),
        (geometry.shear(torch.tensor([0.25]), torch.zeros(1)), {"shear": [14.036243467926479, 0.0]}),
        (geometry.shear(torch.zeros(1), torch.tensor([0.25])), {"shear": [0.0, 14.036243467926479]}),
        (
            geometry.compose(
                geometry.stretch(torch.tensor([1 / 0.8]), torch.tensor([1 / 0.8])),
                geometry.shear(torch.tensor([0.25]), torch.zeros(1)),
                geometry.rotation(torch.tensor([9.0])),
                geometry.shift(torch.tensor([-0.25]), torch.tensor([0.125])),
            ),
            {"translate": [2, -1], "angle": 9.0, "scale": 0.8, "shear": [14.036243467926479, 0.0]},
        ),
    ],
)
def test_an_affine_map_is_torchvisions(maps: Tensor, parameters: dict[str, object]) -> None:
    images = floats(photographs())
    whole = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0], **parameters}
    expected = functional.affine(images, **whole, interpolation=functional.InterpolationMode.BILINEAR)
    made = geometry.resample(images, maps.expand(6, 3, 3))
    # torchvision masks the fill, ours fades into black: the same but on the border.
    torch.testing.assert_close(made, expected, atol=1e-2, rtol=1e-4)


def test_crop_and_flip_by_resampling_move_pixels_as_the_gather_does() -> None:
    images, labels = photographs(), torch.arange(6)
    moved, _ = augmenter(Augmentation(crop=3))(images, labels, generator())
    resampled, _ = augmenter(Augmentation(crop=3, translate=1e-9))(images, labels, generator())
    torch.testing.assert_close(moved, resampled, atol=1e-3, rtol=1e-4)


BLENDS = {
    "adjust_brightness": colour.brighten,
    "adjust_contrast": colour.change_contrast,
    "adjust_saturation": colour.saturate,
    "adjust_sharpness": colour.sharpen,
}


@pytest.mark.parametrize("name", BLENDS)
@pytest.mark.parametrize("factor", [0.1, 1.0, 1.9])
def test_a_blend_is_torchvisions(name: str, factor: float) -> None:
    images = floats(photographs())
    made = BLENDS[name](images, torch.full((6,), factor))
    expected = getattr(functional, name)(images / 255, factor) * 255
    # The luma weights of torchvision have four digits, as ours, and their sum is .9999.
    torch.testing.assert_close(made, expected, atol=2e-3, rtol=1e-5)


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_posterizing_is_torchvisions(bits: int) -> None:
    images = photographs()
    made = colour.posterize(floats(images), torch.full((6,), 8.0 - bits), torch.ones(6, dtype=torch.bool))
    assert torch.equal(made, functional.posterize(images.permute(0, 3, 1, 2), bits).float())


@pytest.mark.parametrize("threshold", [0.0, 90.0, 255.0])
def test_solarizing_is_torchvisions(threshold: float) -> None:
    images = photographs()
    made = colour.solarize(floats(images), torch.full((6,), threshold), torch.ones(6, dtype=torch.bool))
    assert torch.equal(made, functional.solarize(images.permute(0, 3, 1, 2), threshold).float())


@given(seed=st.integers(0, 2**31), side=st.integers(3, 40))
def test_equalizing_and_stretching_contrast_are_torchvisions(seed: int, side: int) -> None:
    images, every = photographs(3, side, seed), torch.ones(3, dtype=torch.bool)
    images[0, :, :, 0] = 7  # one value alone stays as it is
    channels_first = images.permute(0, 3, 1, 2)
    assert torch.equal(colour.equalize(floats(images), every), functional.equalize(channels_first).float())
    expected = functional.autocontrast(floats(images) / 255) * 255
    torch.testing.assert_close(colour.stretch_contrast(floats(images), every), expected, atol=1e-2, rtol=1e-4)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_of_randaugment_changes_its_own_images_only(name: str) -> None:
    images = floats(photographs(2))
    numbers = torch.tensor([OPERATIONS.index(name), OPERATIONS.index("identity")])
    drawn = Draw(numbers, torch.full((2,), 0.9), torch.tensor([1.0, -1.0]))
    changed = drawn.recolour(geometry.resample(images, drawn.maps()))
    torch.testing.assert_close(changed[1], images[1], atol=1e-3, rtol=0)
    assert bool((changed[0] - images[0]).abs().max() > 1) == (name != "identity")


STRENGTH = 5 / 6
"""Whole numbers of pixels: .45 of 16, times this, is 6."""
SHEAR = math.degrees(math.atan(0.3 * STRENGTH))
BLEND = 1 + 0.9 * STRENGTH
REFERENCES = {
    "identity": lambda images: images,
    "shear-x": lambda images: moved(images, shear=[SHEAR, 0.0]),
    "shear-y": lambda images: moved(images, shear=[0.0, SHEAR]),
    "translate-x": lambda images: moved(images, translate=[-6, 0]),
    "translate-y": lambda images: moved(images, translate=[0, -6]),
    "rotate": lambda images: moved(images, angle=30 * STRENGTH),
    "brightness": lambda images: functional.adjust_brightness(images, BLEND),
    "saturation": lambda images: functional.adjust_saturation(images, BLEND),
    "contrast": lambda images: functional.adjust_contrast(images, BLEND),
    "sharpness": lambda images: functional.adjust_sharpness(images, BLEND),
    "posterize": lambda images: functional.posterize((images * 255).to(torch.uint8), 8 - 3) / 255,
    "solarize": lambda images: functional.solarize(images, 1 - STRENGTH),
    "autocontrast": functional.autocontrast,
    "equalize": lambda images: functional.equalize((images * 255).to(torch.uint8)) / 255,
}


def moved(images: Tensor, **changes: object) -> Tensor:
    whole = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0], **changes}
    return functional.affine(images, **whole, interpolation=functional.InterpolationMode.BILINEAR)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_of_randaugment_at_its_strength_is_torchvisions(name: str) -> None:
    images = floats(photographs())
    drawn = Draw(torch.full((6,), OPERATIONS.index(name)), torch.full((6,), STRENGTH), torch.ones(6))
    made = drawn.recolour(geometry.resample(images, drawn.maps()))
    torch.testing.assert_close(made, 255 * REFERENCES[name](images / 255), atol=0.05, rtol=1e-4)


def test_randaugment_draws_every_operation_as_often() -> None:
    drawn = Draw.random(28_000, 9.0, torch.device("cpu"), generator())
    counts = torch.bincount(drawn.operation, minlength=len(OPERATIONS))
    assert len(counts) == len(OPERATIONS)
    assert (counts - 2000).abs().max() < 5 * 2000**0.5
    assert abs(float(drawn.sign.mean())) < 5 / 28_000**0.5
    assert abs(float(drawn.strength.mean()) - 0.9) < 0.01


def test_the_mass_of_a_cutmix_label_is_the_area_that_was_not_pasted_over() -> None:
    images = (torch.arange(250) + 1)[:, None, None, None].expand(250, 16, 16, 3).to(torch.uint8)
    labels = torch.arange(250)
    made = augmenter(dataclasses.replace(NONE, cutmix=1.0), classes=250)
    changed, targets = made(images, labels, generator())
    own = (undone(changed)[:, 0] == labels[:, None, None] + 1).float().mean((1, 2))
    torch.testing.assert_close(targets[labels, labels], own)
    torch.testing.assert_close(targets[labels, labels.roll(1)], 1 - own)
    assert 0 <= own.min() < 0.2
    assert own.max() > 0.9


def test_mixup_blends_image_and_label_alike() -> None:
    images, labels = photographs(8), torch.arange(8)
    made = augmenter(dataclasses.replace(NONE, mixup=1.0))
    changed, targets = made(images, labels, generator())
    share = targets[labels, labels][:, None, None, None]
    plain = made.plain(images)
    torch.testing.assert_close(changed, share * plain + (1 - share) * plain.roll(1, 0))


def test_both_mixings_on_choose_for_each_image() -> None:
    images, labels = photographs(400, 8), torch.arange(400)
    made = augmenter(dataclasses.replace(NONE, mixup=0.8, cutmix=1.0, mixed=0.5), classes=400, size=8)
    changed, targets = made(images, labels, generator())
    plain = made.plain(images)
    untouched = (changed == plain).flatten(1).all(1) & (targets[labels, labels] == 1)
    partly = (changed == plain).all(1).flatten(1).any(1) & ~untouched
    assert 0.4 < untouched.float().mean() < 0.65
    assert 0.15 < partly.float().mean() < 0.3


@settings(max_examples=20)
@given(alpha=st.floats(0.2, 4))
def test_the_table_of_quantiles_has_the_moments_of_the_beta_distribution(alpha: float) -> None:
    draws = mixing.look_up(mixing.beta_table(alpha), torch.rand(200_000, generator=generator()))
    assert abs(float(draws.mean()) - 0.5) < 5e-3
    assert abs(float(draws.var()) - 1 / (4 * (2 * alpha + 1))) < 3e-3


def test_erasing_fills_one_box_inside_of_the_wanted_share() -> None:
    images = torch.full((500, 32, 32, 3), 100, dtype=torch.uint8)
    made = augmenter(dataclasses.replace(NONE, erasing=0.25), size=32)
    changed, _ = made(images, torch.zeros(500, dtype=torch.int64), generator())
    erased = (changed != made.plain(images)).all(1)
    area = erased.float().mean((1, 2))
    chosen = area > 0
    assert abs(chosen.float().mean() - 0.25) < 0.08
    box = erased.any(2).sum(1) * erased.any(1).sum(1)
    assert torch.equal(box, erased.sum((1, 2)))
    assert 0.01 < area[chosen].min() < area.max() < 0.38


def test_smoothing_spreads_its_share_over_all_classes() -> None:
    targets = mixing.soft_targets(torch.tensor([2]), 4, 0.2)
    torch.testing.assert_close(targets, torch.tensor([[0.05, 0.05, 0.85, 0.05]]))


def test_copies_follow_each_other_batch_by_batch_and_differ() -> None:
    images, labels = photographs(), torch.arange(6)
    changed, targets = augmenter(Augmentation(repeats=3))(images, labels, generator())
    assert torch.equal(targets.argmax(1), labels.repeat(3))
    assert not torch.equal(changed[:6], changed[6:12])


def test_targets_are_distributions_and_images_finite_with_everything_on() -> None:
    changed, targets = augmenter(ALL)(photographs(40), torch.arange(40) % 10, generator())
    assert changed.shape == (80, 3, 16, 16)
    assert changed.isfinite().all()
    torch.testing.assert_close(targets.sum(1), torch.ones(80))


def test_grey_images_go_through_everything() -> None:
    made = Augmenter(ALL, MEAN[:1], STD[:1], 10, 8)
    changed, _ = made(photographs(4, 8)[..., :1].contiguous(), torch.arange(4), generator())
    assert changed.shape == (8, 1, 8, 8)
    assert changed.isfinite().all()


@pytest.mark.parametrize(
    ("field", "value"),
    [("crop", -1), ("rotate", float("nan")), ("magnitude", 11.0), ("smoothing", 1.0), ("erasing", 1.5), ("repeats", 0)],
)
def test_a_field_out_of_range_is_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: got {value}"):
        Augmentation(**{field: value})


def test_a_batch_of_another_size_is_named() -> None:
    with pytest.raises(ValueError, match=r"^images: got \(16, 16, 3\)"):
        augmenter(NONE, size=32)(photographs(), torch.arange(6))
    with pytest.raises(ValueError, match=r"^crop: got 4"):
        augmenter(Augmentation(), size=4)


def test_a_compiler_takes_everything_as_one_graph_and_changes_nothing() -> None:
    """In a process of its own: the run-time checker of shapes is no code that torch.compile could read."""
    program = f"""
import torch
from tessella.images.augmentation import Augmentation, Augmenter
made = Augmenter({dataclasses.replace(ALL, randaugment=1)!r}, torch.full((3,), 0.5), torch.full((3,), 0.25), 10, 16)
images = torch.randint(256, (12, 16, 16, 3), dtype=torch.uint8)
outcomes = []
for function in (made, torch.compile(made, fullgraph=True, backend="aot_eager")):
    torch.manual_seed(4)
    outcomes.append(function(images, torch.arange(12) % 10))
torch.testing.assert_close(*outcomes)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_everything_is_captured_in_a_cuda_graph_and_draws_anew_at_each_replay() -> None:
    images, labels = photographs(64).cuda(), torch.arange(64).cuda() % 10
    made = augmenter(ALL).cuda()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        made(images, labels)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        changed, targets = made(images, labels)
    graph.replay()
    first = changed.clone()
    graph.replay()
    assert not torch.equal(first, changed)
    torch.testing.assert_close(targets.sum(1), torch.ones_like(targets[:, 0]))
