"""The claims on real images, at sizes that take a moment: what they measure, and that their bars can be missed."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tessella.claims import catalogue, equivariance, fig1a, fig5, fig6, fig7, layers, parametrisation
from tessella.claims.claim import Context, Verdict
from tessella.claims.image_training import (
    EncodingSetup,
    ImageSetup,
    column,
    compiling,
    earlier_records,
    paired,
    small_digits,
)
from tessella.claims.learnt_locality import read_layers
from tessella.claims.throughput import images_per_second
from tessella.cli.fields import changed
from tessella.images.digits import digits
from tessella.images.grid_shuffle import GridShuffle
from tessella.models.vit import ViT, ViTShape
from tessella.probe.locality import cosines
from tessella.probe.mean_attention import mean_attention
from tessella.report.page import content
from tessella.runs.environment import environment
from tessella.training.network import build
from tessella.training.recipe import Recipe

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


def tiny_recipe() -> Recipe:
    """A run that takes a fraction of a second and learns next to nothing."""
    recipe = small_digits()
    shape = dataclasses.replace(recipe.shape, dim=8, depth=2, heads=2, hidden=8)
    return dataclasses.replace(recipe, shape=shape, epochs=1, batch=256)


def verdict(claim_id: str, setup: Any, context: Context) -> Verdict:
    claim = catalogue.load(claim_id)
    return Verdict(claim, setup, context.seeds, claim.measure(setup, context), 1.0, environment())


def test_the_recipe_follows_the_data_and_a_shorter_schedule_keeps_its_share_of_warm_up() -> None:
    assert ImageSetup().recipe == small_digits()
    assert ImageSetup(data="cifar100").recipe.name == "cifar100"
    assert dataclasses.replace(ImageSetup(), data="svhn").recipe.augmentation.flip is False
    elsewhere = ImageSetup(data="folder")
    assert elsewhere.recipe == dataclasses.replace(small_digits(), data="folder")
    short = ImageSetup(data="cifar100", epochs=20).recipe
    assert (short.epochs, short.warmup) == (20, 2.0)


def test_encodings_begin_small_where_it_is_asked_what_they_have_learnt() -> None:
    setup = EncodingSetup()
    assert setup.recipe_with("vanilla").spread == 0.02
    assert setup.recipe_with("positional") == setup.recipe.with_attention("matrix")
    assert EncodingSetup(spread=None).recipe_with("vanilla") == setup.recipe
    model = build(setup.recipe_with("vanilla"), 0)
    assert isinstance(model, ViT)
    assert model.positions is not None
    assert float(model.positions.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_columns_follow_the_seeds_and_pairs_share_one() -> None:
    records = [
        {"attention": side, "seed": seed, "accuracy": value, "compile_seconds": 4.0 * (seed == 1)}
        for side, seed, value in (("b", 1, 7.0), ("a", 1, 5.0), ("a", 0, 4.0), ("b", 2, 9.0), ("b", 0, 4.5))
    ]
    assert column(records, "accuracy", attention="b") == [4.5, 7.0, 9.0]
    assert paired(records, "attention", "a", "b") == [0.5, 2.0]
    assert compiling(records) == [4.0, 4.0]


def test_figure_7_pairs_seeds_and_keeps_every_run() -> None:
    found = verdict("fig7", fig7.Setup(recipe=tiny_recipe()), Context(seeds=2))
    measured = found.findings.measured
    assert measured["difference"] == pytest.approx(
        [b - a for a, b in zip(measured["vanilla"], measured["positional"], strict=True)]
    )
    record = json.loads(json.dumps(found.as_json(), allow_nan=False))
    runs = record["details"]["runs"]
    assert [(run["attention"], run["seed"]) for run in runs] == [
        ("vanilla", 0), ("positional", 0), ("vanilla", 1), ("positional", 1)
    ]  # fmt: skip
    assert runs[0]["recipe"]["attention"] == "vanilla"
    assert runs[1]["recipe"] == {**runs[0]["recipe"], "attention": "matrix"}
    assert not found.holds  # one epoch reaches no 90 %
    shown = content(found)
    assert list(shown.figures) == ["fig7"]
    assert "10 times the rate of the rest" in shown.sections[1].body


def test_earlier_runs_are_counted_and_not_made_again(tmp_path: Path) -> None:
    first = verdict("fig7", fig7.Setup(recipe=tiny_recipe(), attentions=("vanilla",)), Context(seeds=2))
    path = tmp_path / "first.json"
    path.write_text(json.dumps([first.as_json()]))
    trained: list[str] = []
    context = Context(seeds=2, progress=lambda fraction, text: trained.append(text.split()[0]))
    whole = verdict("fig7", fig7.Setup(recipe=tiny_recipe(), earlier=(str(path),)), context)
    assert whole.findings.measured["vanilla"] == first.findings.measured["vanilla"]
    assert set(trained) == {"positional-seed0", "positional-seed1"}
    # Another recipe is another run.
    faster = dataclasses.replace(tiny_recipe(), rate=1e-3)
    setup = fig7.Setup(recipe=faster, attentions=("vanilla",), earlier=(str(path),))
    again = verdict("fig7", setup, Context(seeds=1))
    assert again.findings.details["runs"][0]["recipe"]["rate"] == 1e-3


def test_a_file_without_such_runs_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('[{"claim": "fig5"}]')
    with pytest.raises(ValueError, match=r"earlier: got .*other.json, which holds no runs of fig7, expected"):
        earlier_records("fig7", (str(path),))
    path.write_text("{")
    with pytest.raises(ValueError, match=r"earlier: got .*other.json, which is not JSON"):
        earlier_records("fig7", (str(path),))


def test_a_side_alone_is_held_against_its_own_bars() -> None:
    names = {bar.measurement for bar in fig7.bars(fig7.Setup(data="cifar100", attentions=("positional",)))}
    assert names == {"positional_seconds"}
    bars = {bar.measurement: (bar.relation, bar.limit) for bar in fig7.bars(fig7.Setup(data="cifar100"))}
    assert bars == {
        "vanilla": (">=", 68.0), "vanilla_seconds": ("<=", 240.0), "positional_seconds": ("<=", 150.0),
        "difference": (">=", -0.5),
    }  # fmt: skip


def test_presets_take_the_place_of_the_datas_recipe_and_of_its_bars() -> None:
    in_order = changed(fig7.Setup(), ["data=cifar100", "preset=cifar100_small", "recipe.epochs=3"])
    assert in_order.recipe.name == "cifar100_small"
    assert in_order.recipe.epochs == 3
    assert changed(fig7.Setup(), ["preset=cifar100_small", "data=cifar100"]).recipe.name == "cifar100_small"
    bars = {bar.measurement: (bar.relation, bar.limit) for bar in fig7.bars(in_order)}
    assert bars == {"vanilla": (">=", 20.0), "difference": (">=", -0.5)}  # none of them the GPU's
    with pytest.raises(ValueError, match="preset: got 'small', expected one of digits, cifar10, "):
        fig7.Setup(preset="small")
    with pytest.raises(ValueError, match="preset: got cifar100_small, which is for cifar100, but data is digits"):
        fig7.measure(fig7.Setup(preset="cifar100_small"), Context(seeds=1))


def test_what_the_theory_predicts_needs_both_conditions() -> None:
    cases = parametrisation.cases(parametrisation.Setup(diagonals=(0.0, 2.0), score_rates=(1.0, 10.0)))
    assert [case.name for case in cases if case.predicted] == ["gram_2_10", "matrix_2_10"]
    assert [case.name for case in cases if not case.predicted] == [
        "projections_1", "projections_10", "gram_2_1", "matrix_0_1", "matrix_2_1", "matrix_0_10"
    ]  # fmt: skip


def test_contrasts_are_those_of_the_predictions() -> None:
    setup = parametrisation.Setup(parametrisations=("matrix",), diagonals=(0.0, 2.0), score_rates=(1.0, 50.0))
    numbers = {"matrix_0_1": 1.0, "matrix_2_1": 2.0, "matrix_0_50": 4.0, "matrix_2_50": 8.0}
    records = {name: {"accuracy": value, "locality": value / 10} for name, value in numbers.items()}
    found = parametrisation.contrasts(setup, {**records, "vanilla": {"accuracy": 7.0}})
    assert found["accuracy_gain_diagonal"] == 4.0
    assert found["accuracy_gain_rate"] == 6.0
    assert found["accuracy_gain_predicted"] == pytest.approx(8.0 - 7 / 3)
    assert found["rank_correlation"] == pytest.approx(1.0)
    assert found["best_minus_vanilla"] == 1.0
    flat = {name: {"accuracy": 5.0, "locality": 0.1} for name in numbers}
    assert math.isnan(parametrisation.contrasts(setup, flat)["rank_correlation"])


def test_every_way_to_make_a_is_trained_with_its_start_and_rate() -> None:
    setup = parametrisation.Setup(recipe=tiny_recipe(), diagonals=(0.0, 2.0), score_rates=(1.0, 50.0))
    found = verdict("parametrisation", setup, Context(seeds=1))
    runs = found.findings.details["runs"]
    assert [run["case"] for run in runs] == ["vanilla", *(case.name for case in parametrisation.cases(setup))]
    by_case = {run["case"]: run["recipe"] for run in runs}
    assert (by_case["matrix_2_50"]["diagonal"], by_case["matrix_2_50"]["score_rate"]) == (2.0, 50.0)
    assert set(found.findings.measured) >= {bar.measurement for bar in found.bars}
    assert len(content(found).figures) == 2


def test_figure_1a_measures_encodings_and_a_before_and_after_training() -> None:
    found = verdict("fig1a", fig1a.Setup(recipe=tiny_recipe()), Context(seeds=1))
    measured = found.findings.measured
    assert measured["chance"] == [pytest.approx(0.2)]
    assert measured["locality_positional_scores_before"] == [pytest.approx(0.2)]  # a diagonal ties all others
    assert set(measured) >= {bar.measurement for bar in found.bars}
    pictures = found.findings.evidence["pictures"]["positional"]
    assert pictures["before"]["scores"].tolist() == (2 * torch.eye(16) - 1).tolist()
    assert (pictures["after"]["encodings"] != pictures["before"]["encodings"]).any()
    assert list(content(found).figures) == [
        "fig1a-vanilla-encodings", "fig1a-positional-encodings", "fig1a-positional-scores"
    ]  # fmt: skip


def test_encodings_of_a_shuffled_grid_are_local_again_once_patches_are_put_back() -> None:
    recipe = dataclasses.replace(small_digits(), shuffle_cell=2, shuffle_seed=4)
    model = ViT(recipe.shape)
    places = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    local = torch.exp(-(torch.cdist(places, places) ** 2))  # as the image's own patches would have it
    order = GridShuffle.random(8, 2, seed=4).patch_order(2)
    with torch.no_grad():
        assert model.positions is not None
        model.positions[1:, :16] = local[order]
        model.positions[1:, 16:] = 0
    numbers, maps = fig5.localities(model, recipe)
    assert numbers["locality_restored"] == 1.0
    assert numbers["locality_shuffled"] < 0.5
    assert maps["restored"] == pytest.approx(cosines(local).numpy(), abs=1e-6)


def test_figure_5_trains_every_network_on_every_shuffle() -> None:
    setup = fig5.Setup(recipe=tiny_recipe(), networks=("vit", "small_vgg"), cells=(2, 8))
    found = verdict("fig5", setup, Context(seeds=2))
    measured = found.findings.measured
    assert measured["fall_vit"] == pytest.approx(
        [a - b for a, b in zip(measured["accuracy_vit_8"], measured["accuracy_vit_2"], strict=True)]
    )
    recipes = [run["recipe"] for run in found.findings.details["runs"]]
    assert [each["shuffle_seed"] for each in recipes] == [0, 0, 0, 0, 1, 1, 1, 1]
    # With cells as large as the image nothing moves.
    assert measured["locality_shuffled_vit_8"] == measured["locality_restored_vit_8"]
    assert list(content(found).figures) == ["fig5a", "fig5b", "fig5c-vit"]


def test_cells_that_cut_patches_are_refused() -> None:
    with pytest.raises(ValueError, match=r"cells: got \(3,\), expected divisors of the 8 pixels of a side"):
        fig5.measure(fig5.Setup(recipe=tiny_recipe(), cells=(3,)), Context(seeds=1))


def test_a_network_that_cannot_be_built_is_told_before_any_is_trained() -> None:
    def trained(fraction: float, text: str) -> None:
        raise AssertionError(f"trained {text} first")

    setup = fig5.Setup(recipe=tiny_recipe(), networks=("vit", "transformer"))
    with pytest.raises(ValueError, match="network: got 'transformer', expected one of resnet18"):
        fig5.measure(setup, Context(seeds=1, progress=trained))


def test_mean_attention_is_the_attention_that_the_model_applies() -> None:
    model = ViT(TINY, "vanilla", seed=2).double()
    images = torch.rand(6, 1, 8, 8, dtype=torch.float64)
    layer: Any = model.blocks[0]
    tokens = torch.cat([model.prefix_tokens.expand(6, -1, -1), model.embed(_patches(images))], 1) + model.positions
    normal = layer.norm_attention(tokens)
    found = torch.stack([mean_attention(model, images[each : each + 1])[0] for each in range(6)])
    mixed = []
    for image in range(6):
        values = layer.attention.qkv(normal)[image, :, 2 * TINY.dim :].view(TINY.tokens, TINY.heads, -1).transpose(0, 1)
        mixed.append((found[image].double() @ values).transpose(0, 1).reshape(TINY.tokens, TINY.dim))
    torch.testing.assert_close(layer.attention.out(torch.stack(mixed)), layer.attention(normal), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(mean_attention(model, images, batch=4)[0], found.mean(0))


def _patches(images: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pixel_unshuffle(images, TINY.patch).flatten(2).transpose(1, 2)


def test_layers_measures_every_kept_state_from_the_first_to_the_last() -> None:
    recipe = layers.deeper(tiny_recipe(), 3)
    found = verdict("layers", layers.Setup(recipe=recipe, states=3, images=8), Context(seeds=1))
    runs = found.findings.details["runs"]
    assert runs[0]["steps"] == [0, 1, 5]  # five batches of 256, states growing apart as squares do
    assert [len(runs[0][name]) for name in ("encodings", "by_layer", "by_head")] == [3, 3, 3]
    measured = found.findings.measured
    assert measured["locality_vanilla_2"] == [runs[0]["by_layer"][-1][1]]
    gains = [last - first for first, last in zip(runs[0]["by_layer"][0], runs[0]["by_layer"][-1], strict=True)]
    assert measured["gain_least_vanilla"] == [min(gains)]
    assert measured["gain_best_vanilla"] == [max(gains)]
    # A starts with a diagonal alone: all other patches tie.
    assert runs[1]["by_layer"][0] == pytest.approx([0.2, 0.2])
    assert "locality_vanilla_3" not in measured
    assert len(content(found).sections) == 5


def test_images_are_shown_to_the_heads_as_in_training() -> None:
    train_set, test_set = digits("train"), digits("test")
    shown = layers.shown_images((train_set, test_set), 3)
    plain = torch.from_numpy(test_set.images[:3]).permute(0, 3, 1, 2).float() / 255
    bytes_learnt = torch.from_numpy(train_set.images).float() / 255
    torch.testing.assert_close(shown, (plain - bytes_learnt.mean()) / bytes_learnt.std(correction=0), atol=1e-4, rtol=0)


def test_no_gradient_reaches_what_patches_attend_to_in_the_last_layer_before_a_class_token() -> None:
    shape = dataclasses.replace(TINY, depth=2)
    for pooling, moves in (("class", False), ("mean", True)):
        model = ViT(dataclasses.replace(shape, pooling=pooling), "matrix", seed=0)
        model(torch.rand(3, 1, 8, 8)).square().sum().backward()
        slopes = [block.attention.scores.attention.grad[:, 1:].abs().max() for block in model.blocks]
        assert slopes[0] > 0
        assert bool(slopes[1] > 0) is moves
    assert read_layers(shape) == 1
    assert read_layers(dataclasses.replace(shape, pooling="mean")) == 2
    with pytest.raises(ValueError, match="depth: got 1 with the class token read, expected at least 2 layers"):
        read_layers(TINY)


def test_figure_6_compares_vit_tinys_form_and_speeds_turn_by_turn() -> None:
    setup = fig6.Setup(recipe=tiny_recipe(), width=6, rounds=2, steps=2, timed_batch=8)
    found = verdict("fig6", setup, Context(seeds=1))
    measured = found.findings.measured
    shapes = [run["recipe"]["shape"] for run in found.findings.details["runs"]]
    assert {(each["depth"], each["heads"], each["dim"], each["hidden"]) for each in shapes} == {(12, 3, 6, 24)}
    speeds = found.findings.details["images_per_second"]
    assert measured["positional_over_vanilla"] == pytest.approx(
        [a / b for a, b in zip(speeds["positional"], speeds["vanilla"], strict=True)]
    )
    assert len(speeds["vanilla"]) == 2
    assert list(content(found).figures) == ["fig6", "fig6-speed"]
    assert "This is not ImageNet" in content(found).sections[0].body


def test_imagenets_set_up_measures_beside_timm_at_its_size() -> None:
    recipes = fig6.timed(catalogue.load("fig6").full)
    assert recipes["peer"].model == "timm:vit_tiny_patch16_224"
    assert {(each.batch, each.shape.image, each.shape.patch, each.shape.dim) for each in recipes.values()} == {
        (1024, 224, 16, 192)
    }
    assert recipes["positional"] == dataclasses.replace(recipes["vanilla"], attention="matrix")
    assert {bar.measurement for bar in fig6.bars(catalogue.load("fig6").full)} == {
        "difference", "vanilla_over_peer", "positional_over_vanilla"
    }  # fmt: skip


def test_speeds_of_other_batches_are_not_compared() -> None:
    other = dataclasses.replace(tiny_recipe(), batch=128)
    with pytest.raises(ValueError, match="recipes: got b with batch 128 and 8 pixels, expected 256 and 8"):
        images_per_second({"a": tiny_recipe(), "b": other}, 1, 1, "cpu")


def test_a_run_that_its_folder_holds_keeps_the_time_that_it_took(tmp_path: Path) -> None:
    setup = fig7.Setup(recipe=tiny_recipe(), attentions=("vanilla",))
    first, second = (fig7.measure(setup, Context(seeds=1, folder=tmp_path)) for _ in range(2))
    for name in ("seconds", "compile_seconds", "images_per_second", "accuracy"):
        assert second.details["runs"][0][name] == first.details["runs"][0][name] != 0
