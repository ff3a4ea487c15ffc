import dataclasses
import math
from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from tessella.cli.main import TRAINED
from tessella.models.positional_scores import PositionalScores
from tessella.models.vit import ViT
from tessella.training.network import build, groups
from tessella.training.recipe import Recipe
from tessella.training.recipes import RECIPES, digits


def test_the_rate_rises_along_a_line_and_falls_along_half_a_cosine() -> None:
    recipe = dataclasses.replace(digits(), epochs=10, warmup=2.0, final_rate=0.1)
    rates = [recipe.rate_at(step, 5) for step in range(50)]
    assert rates[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    fall = [0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / 40)) for step in range(40)]
    assert rates[10:] == pytest.approx(fall)
    assert rates[10] == 1.0


def test_without_a_warm_up_the_rate_begins_at_its_top() -> None:
    recipe = dataclasses.replace(digits(), warmup=0.0)
    assert recipe.rate_at(0, 5) == 1.0


def test_the_average_keeps_less_at_first() -> None:
    recipe = dataclasses.replace(digits(), ema=0.99)
    assert [recipe.kept_at(step) for step in (0, 9, 10_000)] == pytest.approx([0.1, 10 / 19, 0.99])


def test_snapshots_are_the_denser_the_earlier() -> None:
    steps = dataclasses.replace(digits(), epochs=10, snapshots=6).snapshot_steps(25)
    assert steps == [0, 10, 40, 90, 160, 250]


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_bear_their_names_and_take_both_attentions(name: str) -> None:
    recipe = RECIPES[name]()
    assert recipe.name == name
    assert recipe.with_attention("positional").attention == "matrix"
    assert recipe.with_attention("vanilla").attention == "vanilla"


def test_the_command_line_knows_every_recipe() -> None:
    assert ["signal-sets", *RECIPES] == TRAINED


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Types are checked by the tests' hook alone; a user without it meets the recipe's own words."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("epochs", 0, "at least 1"),
        ("rate", -1.0, "above 0"),
        ("rate", math.nan, "above 0"),
        ("ema", 1.0, "below 1"),
        ("snapshots", 1, "0, or 2 or more"),
        ("attention", "linear", "vanilla, projections"),
        ("precision", "float16", "bfloat16, autocast, float32"),
        ("compile_mode", "fast", "max-autotune-no-cudagraphs"),
        ("sdpa", "fast", "cudnn"),
        ("draws", "image", "batch, process"),
    ],
)
def test_a_wrong_field_is_named_with_what_came_and_what_was_expected(
    field: str, value: object, told: str, unchecked: None
) -> None:
    with pytest.raises(ValueError, match=f"{field}: got {value}|{field}: got '{value}'") as caught:
        dataclasses.replace(digits(), **{field: value})  # type: ignore[arg-type]
    assert told in str(caught.value)


def small(attention: str) -> Recipe:
    recipe = digits().with_attention(attention)
    return dataclasses.replace(recipe, shape=dataclasses.replace(recipe.shape, dim=16, depth=2, heads=2, hidden=16))


@pytest.mark.parametrize("attention", ["projections", "gram", "matrix"])
def test_scores_have_a_rate_of_their_own_and_no_decay(attention: str) -> None:
    recipe = dataclasses.replace(small(attention), score_rate=7.0, weight_decay=0.3)
    model = build(recipe, 0)
    assert isinstance(model, ViT)
    made = groups(model, recipe)
    by_rate = {group["lr"]: group for group in made if group["lr"] != 1.0}
    assert list(by_rate) == [7.0]
    assert by_rate[7.0]["weight_decay"] == 0.0
    scored = {id(each) for each in by_rate[7.0]["params"]}
    parts = [part for part in model.modules() if isinstance(part, PositionalScores)]
    expected = {id(each) for part in parts for each in part.parameters()}
    if attention == "gram":
        expected = {id(model.positions)}
    assert scored == expected
    assert sum(len(group["params"]) for group in made) == len(list(model.parameters()))


def test_vanilla_attention_has_no_rate_of_its_own() -> None:
    recipe = small("vanilla")
    assert {group["lr"] for group in groups(build(recipe, 0), recipe)} == {1.0}


@pytest.mark.parametrize("model", ["resnet", "small_resnet"])
def test_what_a_network_cannot_be_is_told(model: str) -> None:
    recipe = dataclasses.replace(digits(), model=model, drop_path=0.1)
    with pytest.raises(ValueError, match=r"drop_path: got 0\.1"):
        build(recipe, 0)
    with pytest.raises(ValueError, match="attention: got 'matrix'"):
        build(recipe.with_attention("positional"), 0)


def test_timm_models_are_made_for_the_recipes_images() -> None:
    pytest.importorskip("timm")
    recipe = small("vanilla")
    recipe = dataclasses.replace(
        recipe, model="timm:vit_tiny_patch16_224", shape=dataclasses.replace(recipe.shape, image=32, patch=16)
    )
    before = torch.get_rng_state()
    model = build(recipe, 3)
    assert torch.equal(before, torch.get_rng_state())
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 10)
    again = build(recipe, 3)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), again.parameters(), strict=True))
    with pytest.raises(ValueError, match="which timm does not know"):
        build(dataclasses.replace(recipe, model="timm:nothing"), 0)
