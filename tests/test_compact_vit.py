import sys

import pytest
import torch

from tessella.dynamics.vit_twins import OBJECTIVES, Recipe, attention_by_layer, train
from tessella.models.compact_vit import Encoder, MaskedAutoencoder, Shape, cut, initialise
from tessella.worlds.digits import Digits


def test_patches_are_cut_from_left_to_right() -> None:
    image = torch.arange(16.0).view(1, 4, 4)
    assert cut(image, 2)[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


def test_encoding_all_patches_as_kept_changes_nothing() -> None:
    encoder = Encoder(Shape())
    initialise(encoder, torch.Generator().manual_seed(0))
    images = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(1))
    order = torch.arange(16).repeat(3, 1)
    torch.testing.assert_close(encoder(images, order)[0], encoder(images)[0])
    permuted = order.flip(1)
    torch.testing.assert_close(encoder(images, permuted)[0].flip(1), encoder(images)[0], rtol=1e-4, atol=1e-5)


def test_masked_autoencoder_does_not_see_hidden_patches() -> None:
    model = MaskedAutoencoder(Shape(), 0.5)
    initialise(model, torch.Generator().manual_seed(0))
    images = torch.zeros(1, 8, 8)
    order = torch.arange(16)[None]  # the upper half is hidden
    changed = images.clone()
    changed[:, :4] = 1.0
    seen = [model.encoder(each, order[:, 8:])[0] for each in (images, changed)]
    torch.testing.assert_close(seen[0], seen[1])
    with torch.no_grad():
        assert float(model.loss(images, order)) != float(model.loss(changed, order))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_each_twin_learns_and_is_the_same_for_a_seed(objective: str) -> None:
    data, recipe = Digits.load(0), Recipe(Shape(dim=16, depth=2, heads=2), steps=40, batch=32)
    state = torch.get_rng_state()
    first, second = (train(objective, recipe, data, seed=3) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert first.losses == second.losses
    assert sum(first.losses[-5:]) < 0.9 * sum(first.losses[:5])
    maps = attention_by_layer(first.encoder, data.held_out[:7])
    assert [tuple(each.shape) for each in maps] == [(7, 2, 16, 16)] * 2
    torch.testing.assert_close(maps[0].sum(-1), torch.ones(7, 2, 16))


def test_digits_are_split_without_overlap() -> None:
    data = Digits.load(1)
    assert len(data.train) + len(data.held_out) == 1797
    assert float(data.train.min()) == -1
    assert float(data.train.max()) == 1
    assert not torch.equal(data.held_out, Digits.load(2).held_out)


def test_missing_scikit_learn_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ModuleNotFoundError, match="scikit-learn is missing, pip install scikit-learn"):
        Digits.load(0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Shape(patch=3), "patch: got 3, expected a divisor of the side, 8"),
        (lambda: Shape(heads=5), "heads: got 5"),
        (lambda: Shape(depth=0), "depth: got 0"),
        (lambda: MaskedAutoencoder(Shape(), 0.01), "ratio: got 0.01"),
        (lambda: Recipe(steps=0), "steps, batch: got 0"),
        (lambda: Digits.load(0, held_out=0), "held_out: got 0"),
    ],
)
def test_what_cannot_be_is_one_clear_line(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
