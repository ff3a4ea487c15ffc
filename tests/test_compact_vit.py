import numpy as np
import pytest
import torch

from tessella.claims.mim_mae import Setup
from tessella.cli.fields import changed
from tessella.dynamics.vit_twins import OBJECTIVES, Recipe, accuracy, attention_by_layer, mean_image_loss, train
from tessella.images.augmentation import Augmentation
from tessella.images.catalogue import load
from tessella.images.image_set import ImageSet
from tessella.models.compact_vit import Encoder, MaskedAutoencoder, Shape, cut, initialise


def test_patches_are_cut_from_left_to_right() -> None:
    image = torch.arange(16.0).view(1, 1, 4, 4)
    assert cut(image, 2)[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    both = torch.cat([image, 16 + image], dim=1)
    assert cut(both, 2)[0, 1].tolist() == [2, 3, 6, 7, 18, 19, 22, 23]


def test_encoding_all_patches_as_kept_changes_nothing() -> None:
    encoder = Encoder(Shape())
    initialise(encoder, torch.Generator().manual_seed(0))
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    order = torch.arange(16).repeat(3, 1)
    torch.testing.assert_close(encoder(images, order)[0], encoder(images)[0])
    permuted = order.flip(1)
    torch.testing.assert_close(encoder(images, permuted)[0].flip(1), encoder(images)[0], rtol=1e-4, atol=1e-5)


def test_masked_autoencoder_does_not_see_hidden_patches() -> None:
    model = MaskedAutoencoder(Shape(), 0.5)
    initialise(model, torch.Generator().manual_seed(0))
    images = torch.zeros(1, 1, 8, 8)
    order = torch.arange(16)[None]  # the upper half is hidden
    changed = images.clone()
    changed[:, :, :4] = 1.0
    seen = [model.encoder(each, order[:, 8:])[0] for each in (images, changed)]
    torch.testing.assert_close(seen[0], seen[1])
    with torch.no_grad():
        assert float(model.loss(images, order)) != float(model.loss(changed, order))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_each_twin_learns_and_is_the_same_for_a_seed(objective: str) -> None:
    data, recipe = load("digits", "train"), Recipe(shape=Shape(dim=16, depth=2, heads=2), steps=80, batch=32)
    state = torch.get_rng_state()
    first, second = (train(objective, recipe, data, seed=3) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert first.losses == second.losses
    assert sum(first.losses[-5:]) < 0.9 * sum(first.losses[:5])
    maps = attention_by_layer(first.encoder, load("digits", "test"), 7)
    assert [tuple(each.shape) for each in maps] == [(7, 2, 16, 16)] * 2
    torch.testing.assert_close(maps[0].sum(-1), torch.ones(7, 2, 16))


def colourful(count: int = 60, side: int = 8) -> ImageSet:
    """Noise in colour with three classes, the class in the colour of the upper half."""
    random = np.random.default_rng(0)
    labels = np.arange(count, dtype=np.int64) % 3
    images = random.integers(0, 128, (count, side, side, 3), dtype=np.uint8)
    images[np.arange(count), : side // 2, :, labels] += 120
    return ImageSet(images, labels, ("a", "b", "c"), "colourful", "train")


def test_images_in_colour_are_learnt_and_named() -> None:
    shape = Shape(channels=3, dim=16, depth=1, heads=2)
    views = Augmentation(crop=0, resized=0.2, brightness=0.4, contrast=0.4, saturation=0.4)
    recipe = Recipe("colourful", shape, steps=60, batch=32, images=Augmentation(crop=1), views=views)
    data = colourful()
    named = train("supervised", recipe, data, seed=0)
    assert accuracy(named, data) > 0.9
    for objective in ("masked", "contrastive"):
        twin = train(objective, recipe, data, seed=0)
        assert np.isfinite(twin.losses).all()
        with pytest.raises(ValueError, match=f"got the {objective} one, expected the supervised"):
            accuracy(twin, data)


def test_the_mean_image_costs_the_variance_of_the_pixels() -> None:
    data = colourful()
    exact = torch.from_numpy(data.images / 127.5 - 1).var(0, unbiased=False).mean()
    assert mean_image_loss(data) == pytest.approx(float(exact))


def test_images_that_do_not_fit_the_recipe_are_named() -> None:
    with pytest.raises(ValueError, match="got images of 8 x 8 pixels and 3 channels, expected side 8 and channels 1"):
        train("masked", Recipe(), colourful(), seed=0)


def test_a_rate_that_diverges_is_named() -> None:
    recipe = Recipe(shape=Shape(dim=16, depth=1, heads=2), steps=51, batch=8, rate=1e30)
    with pytest.raises(ValueError, match="rate: got 1e\\+30, with which the masked loss is"):
        train("masked", recipe, load("digits", "train"), seed=0)


def test_the_recipe_follows_the_data_unless_it_is_changed() -> None:
    assert Setup().recipe == Recipe()
    other = changed(Setup(), ["data=svhn", "recipe.steps=7"])
    assert (other.recipe.data, other.recipe.shape.channels, other.recipe.steps) == ("svhn", 3, 7)
    assert changed(Setup(), ["recipe.steps=7"]).recipe.shape == Shape()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Shape(patch=3), "patch: got 3, expected a divisor of the side, 8"),
        (lambda: Shape(heads=5), "heads: got 5"),
        (lambda: Shape(depth=0), "depth: got 0"),
        (lambda: MaskedAutoencoder(Shape(), 0.01), "ratio: got 0.01"),
        (lambda: Recipe(steps=0), "steps, batch: got 0"),
        (lambda: Recipe(noise=-1.0), "noise: got -1.0"),
        (lambda: Setup(images=0), "images: got 0"),
    ],
)
def test_what_cannot_be_is_one_clear_line(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
