import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tessella.models.simplified_vit import Activation, LossGradient, SimplifiedViT, loss_gradient

sizes = st.tuples(st.integers(1, 7), st.integers(1, 6), st.integers(1, 5))


def problem(
    points: int, patches: int, dim: int, seed: int, degree: int, linear: float, scale: float
) -> tuple[SimplifiedViT, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, patches, dim, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 2, (points,), generator=generator).double() * 2 - 1
    activation = Activation(degree, linear)
    model = SimplifiedViT.initialised(patches, dim, 2.0, 0.3, seed, activation, scale, torch.float64)
    return model, x, y


@given(sizes, st.integers(0, 1000), st.sampled_from([3, 5, 7]), st.floats(0, 1), st.floats(0.3, 4))
def test_gradient_matches_autograd(
    size: tuple[int, int, int], seed: int, degree: int, linear: float, scale: float
) -> None:
    model, x, y = problem(*size, seed, degree, linear, scale)
    ours = loss_gradient(model, x, y)
    loss = -torch.nn.functional.logsigmoid(y * model(x)).mean()
    by_attention, by_value = torch.autograd.grad(loss, [model.attention, model.value])
    torch.testing.assert_close(ours.loss, loss.detach(), rtol=1e-10, atol=1e-12)
    off_diagonal = by_attention.clone().fill_diagonal_(0.0)
    torch.testing.assert_close(
        ours.attention, off_diagonal, rtol=1e-10, atol=1e-10 * (1 + float(by_attention.abs().max()))
    )
    torch.testing.assert_close(ours.value, by_value, rtol=1e-10, atol=1e-10 * (1 + float(by_value.abs().max())))


def test_gradient_does_not_depend_on_the_slices() -> None:
    model, x, y = problem(23, 6, 4, 0, 3, 0.1, 1.0)
    whole = loss_gradient(model, x, y)
    parts = LossGradient(model, 23)
    for start in range(0, 23, 5):
        parts.add(x[start : start + 5], y[start : start + 5])
    sliced = parts.total()
    for name in ("loss", "attention", "value"):
        torch.testing.assert_close(getattr(sliced, name), getattr(whole, name), rtol=1e-12, atol=1e-14)


def test_output_is_equation_t() -> None:
    model, x, _ = problem(3, 5, 4, 1, 3, 0.2, 1.7)
    a, v = model.attention.detach(), model.value.detach()
    for n in range(3):
        total = 0.0
        for i in range(5):
            weights = [math.exp(float(a[i, j]) / 1.7) for j in range(5)]
            inner = 5 * sum(w / sum(weights) * float(v @ x[n, j]) for j, w in enumerate(weights))
            total += inner**3 + 0.2 * inner
        assert float(model(x)[n].detach()) == pytest.approx(total, rel=1e-12)


def test_float32_is_float64_to_its_precision() -> None:
    model, x, y = problem(200, 16, 8, 2, 3, 0.01, 1.0)
    exact = loss_gradient(model, x, y)
    single = SimplifiedViT(model.attention.detach().float(), model.value.detach().float(), model.activation)
    rough = loss_gradient(single, x.float(), y.float())
    for name in ("attention", "value"):
        reference = getattr(exact, name)
        assert float((getattr(rough, name) - reference).norm() / reference.norm()) < 1e-5


def test_initialisation_is_parametrization_3_1() -> None:
    model = SimplifiedViT.initialised(100, 500, 3.0, 0.01, 0)
    assert torch.equal(model.attention.diagonal(), torch.full((100,), 3.0))
    off = model.attention.detach()[~torch.eye(100, dtype=torch.bool)]
    assert float(off.std()) == pytest.approx(0.01, rel=0.05)
    assert float(model.value.detach().std()) == pytest.approx(0.01, rel=0.1)


def test_a_seed_is_one_model_in_every_precision() -> None:
    single, double = (SimplifiedViT.initialised(5, 3, 2.0, 0.1, 4, dtype=t) for t in (torch.float32, torch.float64))
    assert torch.equal(single.attention, double.attention.float())


@pytest.mark.gpu
def test_gradient_on_the_gpu_is_that_of_the_cpu() -> None:
    model, x, y = problem(500, 16, 8, 3, 3, 0.01, 1.0)
    on_cpu = loss_gradient(model, x, y)
    moved = SimplifiedViT(model.attention.detach().cuda(), model.value.detach().cuda(), model.activation)
    on_gpu = loss_gradient(moved, x.cuda(), y.cuda())
    torch.testing.assert_close(on_gpu.attention.cpu(), on_cpu.attention, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(on_gpu.value.cpu(), on_cpu.value, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Activation(degree=4), "degree: got 4, expected an odd number"),
        (lambda: Activation(degree=1), "degree: got 1"),
        (lambda: Activation(linear=-1.0), "linear: got -1.0"),
        (lambda: SimplifiedViT(torch.zeros(3, 3), torch.zeros(2), scale=0.0), "scale: got 0.0"),
        (lambda: SimplifiedViT.initialised(3, 2, 2.0, -1.0, 0), "init: got -1.0"),
        (
            lambda: SimplifiedViT.initialised(3, 2, 2.0, 0.1, 0)(torch.zeros(5, 4, 2)),
            r"patches: got shape \(5, 4, 2\), expected \(points, 3, 2\)",
        ),
        (
            lambda: loss_gradient(SimplifiedViT.initialised(3, 2, 2.0, 0.1, 0), torch.zeros(0, 3, 2), torch.zeros(0)),
            r"patches: got shape \(0, 3, 2\), expected at least one point",
        ),
        (
            lambda: loss_gradient(
                SimplifiedViT.initialised(3, 2, 2.0, 0.1, 0), torch.zeros(2, 3, 2), torch.ones(2) * 3
            ),
            "label: got 3, expected -1 or 1",
        ),
    ],
)
def test_wrong_input_is_named(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()
