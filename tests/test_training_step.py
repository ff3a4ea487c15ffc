import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from tessella.images.augmentation import NONE, Augmenter
from tessella.images.digits import digits as digit_images
from tessella.images.grid_shuffle import GridShuffle
from tessella.models.vit import branch_weights
from tessella.training.failures import LoaderError
from tessella.training.feeds import Mapped, Streamed, feed
from tessella.training.network import build, groups
from tessella.training.processes import Processes
from tessella.training.recipe import Recipe
from tessella.training.recipes import digits
from tessella.training.step import Step
from tessella.training.weights import Weights

STEPS = 4


def small(**changes: object) -> Recipe:
    recipe = digits()
    shape = dataclasses.replace(recipe.shape, dim=16, depth=2, heads=2, hidden=16)
    return dataclasses.replace(recipe, shape=shape, batch=32, **changes)  # type: ignore[arg-type]


def made(recipe: Recipe, device: str = "cpu", rank: int = 0, size: int = 1) -> Step:
    images = digit_images("train")
    mean, std = images.statistics()
    augmenter = Augmenter(recipe.augmentation, mean, std, 10, 8)
    order = None
    if recipe.shuffle_cell:
        shuffle = GridShuffle.random(8, recipe.shuffle_cell, recipe.shuffle_seed)
        order = shuffle.shuffle(torch.arange(64).view(1, 1, 8, 8)).flatten().to(device)
    where = torch.device(device)
    step = Step(
        recipe,
        build(recipe, 0),
        feed(images, STEPS, recipe.distinct, where),
        augmenter,
        order,
        Processes(rank, size),
        where,
    )
    step.prepare()
    step.restart(build(recipe, 0), recipe)
    return step


def advanced(step: Step, recipe: Recipe, steps: int = STEPS, kept: float = 0.9) -> Step:
    order = np.random.default_rng(0).permutation(1347)[: STEPS * recipe.distinct].reshape(STEPS, -1)
    table = np.array([(recipe.rate * (number + 1), kept) for number in range(STEPS)], dtype=np.float32)
    step.begin(order, table, np.arange(STEPS), 0)
    for number in range(steps):
        step.advance(number)
    return step


def by_torch(recipe: Recipe, steps: int = STEPS) -> dict[str, Tensor]:
    """The same steps by a loop over parameters, autograd into .grad, and AdamW as torch has it."""
    model = build(recipe, 0).train()
    own = groups(model, recipe)
    optimizer = torch.optim.AdamW(own, betas=(recipe.momentum, recipe.second_moment), foreach=False)
    images = digit_images("train")
    mean, std = images.statistics()
    augmenter = Augmenter(recipe.augmentation, mean, std, 10, 8)
    order = np.random.default_rng(0).permutation(1347)[: STEPS * recipe.batch].reshape(STEPS, -1)
    for number in range(steps):
        generator = torch.Generator().manual_seed(number)
        pixels, labels = torch.from_numpy(images.images[order[number]]), torch.from_numpy(images.labels[order[number]])
        inputs, targets = augmenter(pixels, labels, generator)
        branches = None
        if recipe.drop_path:
            branches = branch_weights(recipe.drop_path, recipe.shape.depth, len(inputs), generator=generator)
        if recipe.shuffle_cell:
            inputs = GridShuffle.random(8, recipe.shuffle_cell, recipe.shuffle_seed)(inputs)
        loss = torch.nn.functional.cross_entropy(model(inputs, branches), targets)
        optimizer.zero_grad()
        loss.backward()
        if recipe.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        for group, given in zip(optimizer.param_groups, groups(model, recipe), strict=True):
            group["lr"] = given["lr"] * recipe.rate * (number + 1)
        optimizer.step()
    return dict(model.named_parameters())


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "vanilla"},
        {"attention": "matrix", "score_rate": 7.0, "weight_decay": 0.3},
        {"attention": "gram", "added": False},
        {"attention": "projections", "clip": 0.5, "momentum": 0.8, "second_moment": 0.95},
        {"attention": "matrix", "drop_path": 0.3, "shuffle_cell": 2},
    ],
)
def test_steps_on_flat_weights_are_those_of_plain_adamw(changes: dict[str, object]) -> None:
    recipe = small(**changes)
    step = advanced(made(recipe), recipe)
    own = step.weights.named(step.weights.master)
    for name, expected in by_torch(recipe).items():
        if name.endswith(("qkv.bias", "key.bias")):
            continue  # a key's bias moves no score: its gradient is rounding, of which AdamW makes whole steps
        torch.testing.assert_close(
            own[name], expected.detach(), rtol=1e-4, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_the_average_follows_its_formula() -> None:
    recipe = small(attention="matrix", ema=0.9)
    step = made(recipe)
    expected = step.weights.master.clone()
    for steps in range(1, STEPS + 1):
        step.restart(build(recipe, 0), recipe)
        advanced(step, recipe, steps)
        expected = 0.9 * expected + 0.1 * step.weights.master
    assert step.average is not None
    torch.testing.assert_close(step.average.vector, expected)


def test_the_averaged_weights_are_shown_for_a_while_only() -> None:
    recipe = small(attention="matrix", ema=0.9)
    step = advanced(made(recipe), recipe)
    assert step.average is not None
    before, average = step.weights.master.clone(), step.average.vector.clone()
    with step.average.shown():
        assert torch.equal(step.weights.master, average)
    assert torch.equal(step.weights.master, before)
    assert not torch.equal(before, average)


def test_running_statistics_are_averaged_alike() -> None:
    recipe = small(model="small_resnet", ema=0.9)
    step = advanced(made(recipe), recipe)
    assert step.average is not None
    assert len(step.average.statistics) > 0
    own = [each for each in step.model.buffers() if each.is_floating_point()]
    assert not any(torch.equal(one, two) for one, two in zip(own, step.average.statistics, strict=True))


def test_a_second_run_in_the_same_places_is_a_run_of_its_own() -> None:
    recipe = small(attention="matrix", ema=0.9)
    step = advanced(made(recipe), recipe)
    first = {name: each.clone() for name, each in step.state().items()}
    step.restart(build(recipe, 5), recipe)
    advanced(step, recipe)
    step.restart(build(recipe, 0), recipe)
    advanced(step, recipe)
    assert all(torch.equal(each, first[name]) for name, each in step.state().items())


def test_bfloat16_weights_are_made_of_the_master_weights() -> None:
    recipe = small(attention="matrix")
    model = build(recipe, 0)
    weights = Weights(model, groups(model, recipe), torch.bfloat16)
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}
    weights.master.add_(0.1)
    weights.publish()
    for name, master in weights.named(weights.master).items():
        assert torch.equal(model.get_parameter(name), master.bfloat16())
    assert weights.count == sum(each.numel() for each in model.parameters())


def test_batch_normalisation_keeps_float32() -> None:
    recipe = small(model="small_resnet")
    model = build(recipe, 0)
    weights = Weights(model, groups(model, recipe), torch.bfloat16)
    norms = [part for part in model.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert {part.weight.dtype for part in norms} == {torch.float32}
    weights.master.zero_()
    weights.publish()
    assert all(not each.any() for each in model.parameters())


def test_a_stream_brings_what_a_resident_set_has() -> None:
    images, device = digit_images("train"), torch.device("cpu")
    resident, streamed = feed(images, 3, 16, device), Streamed(Mapped(images), 3, 16, device)
    order = np.random.default_rng(0).permutation(1347)[:48].reshape(3, 16)
    for start in (0, 1):
        resident.begin(order, start)
        streamed.begin(order, start)
        for number in range(start, 3):
            streamed.fetch()
            place = torch.tensor([number])
            for one, two in zip(resident.batch(place), streamed.batch(place), strict=True):
                assert torch.equal(one, two)


class Dying(Mapped):
    def batches(self, order: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        yield from list(super().batches(order))[:1]
        raise OSError("the disk is gone")


def test_a_dead_loader_is_named_with_its_reason() -> None:
    streamed = Streamed(Dying(digit_images("train")), 3, 16, torch.device("cpu"))
    streamed.begin(np.arange(48).reshape(3, 16), 0)
    streamed.fetch()
    with pytest.raises(LoaderError, match=r"digits: the loader of images has died \(OSError: the disk is gone\)"):
        streamed.fetch()


@pytest.mark.gpu
@pytest.mark.parametrize("attention", ["vanilla", "matrix"])
@pytest.mark.parametrize("precision", ["bfloat16", "autocast", "float32"])
def test_a_captured_step_is_an_eager_one(attention: str, precision: str) -> None:
    losses = []
    for captured in (True, False):
        recipe = small(
            attention=attention, precision=precision, captured=captured, compile_mode="none", drop_path=0.2, ema=0.9
        )
        step = advanced(made(recipe, "cuda"), recipe)
        losses.append((step.losses.cpu(), step.weights.master.cpu()))
    torch.testing.assert_close(losses[0][0], losses[1][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(losses[0][1], losses[1][1], rtol=1e-2, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("attention", ["vanilla", "matrix"])
def test_a_compiled_step_has_the_losses_of_an_uncompiled_one(attention: str) -> None:
    losses = []
    for mode in ("default", "none"):
        recipe = small(attention=attention, precision="float32", compile_mode=mode, drop_path=0.2)
        losses.append(advanced(made(recipe, "cuda"), recipe).losses.cpu())
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_a_gpu_takes_the_steps_of_a_cpu_where_nothing_is_drawn() -> None:
    recipe = small(attention="matrix", precision="float32", augmentation=NONE)
    losses = [advanced(made(recipe, device), recipe).losses.cpu() for device in ("cpu", "cuda")]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=1e-3)
