"""The claims on real images, at sizes that take a moment: what they measure, and that their bars can be missed."""

import torch

from tessella.claims import equivariance
from tessella.claims.claim import Context
from tessella.images.grid_shuffle import GridShuffle
from tessella.models.vit import ViT, ViTShape

TINY = ViTShape(image=8, patch=2, channels=1, dim=8, depth=1, heads=2, hidden=8)


def test_a_vit_with_shuffled_weights_gives_the_same_logits_for_shuffled_images() -> None:
    images = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    shuffle = GridShuffle.random(8, 2, seed=3)
    for attention in ("vanilla", "projections", "gram", "matrix"):
        plain, moved = (ViT(TINY, attention, seed=1).double() for _ in range(2))
        moved.load_state_dict(equivariance.shuffled(plain.state_dict(), shuffle.patch_order(TINY.patch)))
        torch.testing.assert_close(moved(shuffle.shuffle(images)), plain(images), atol=1e-13, rtol=0)


def test_equivariance_is_exact_over_training_and_lost_with_encodings_left_in_place() -> None:
    setup = equivariance.Setup(shape=TINY, cells=(2,), attentions=("vanilla", "matrix"), steps=4, batch=16)
    found = equivariance.measure(setup, Context(seeds=2)).measured
    assert all(
        bar.accepts(found[bar.measurement]) for bar in equivariance.bars(setup) if "moved" not in bar.measurement
    )
    assert min(found["loss_gap_encodings_left"]) > 1e-6


def test_biases_of_keys_alone_are_left_out_of_the_comparison() -> None:
    state = ViT(TINY, seed=0).state_dict()
    moved = {name: tensor.clone() for name, tensor in state.items()}
    moved["blocks.0.attention.qkv.bias"][TINY.dim : 2 * TINY.dim] += 1
    assert equivariance.weights_gap(state, moved) == 0.0
    moved["blocks.0.attention.qkv.bias"][: TINY.dim] += 1
    assert equivariance.weights_gap(state, moved) == 1.0
