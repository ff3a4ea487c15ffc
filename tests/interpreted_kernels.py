"""The Triton kernels against float64 under Triton's interpreter, which runs them on a CPU, program after program.

Started by `test_kernels_interpreted`, in a process of its own: whether kernels are interpreted is settled when Triton
is imported. The interpreter shows what a kernel computes, reads and writes, and nothing of its speed.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from triton.runtime import interpreter

from tessella.models import descent_kernels, descent_passes
from tessella.models.mixing_kernels import launch, softmax

EPSILON = {torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""About twice the unit roundoff."""
SHAPES = [
    (3, 1, 2, 4),
    (2, 5, 3, 1),
    (7, 16, 2, 8),
    (5, 17, 3, 24),
    (5, 64, 2, 32),
    (5, 65, 2, 32),
    (2, 66, 2, 64),
    (2, 80, 2, 72),
    (2, 81, 2, 80),
    (3, 128, 1, 32),
    (2, 145, 1, 64),
    (2, 197, 2, 64),
    (2, 230, 1, 64),
    (3, 256, 1, 40),
    (2, 257, 1, 64),
    (2, 272, 1, 33),
    (2, 273, 1, 128),
    (1, 529, 1, 16),
]


def _dot_of_bfloat16(create_dot):
    """numpy has no bfloat16: the interpreter keeps its bits in uint16, and would multiply those as whole numbers."""

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    return lambda self, a, b, *rest: create_dot(self, widened(a), widened(b), *rest)


@pytest.fixture(autouse=True, scope="module")
def _interpreter_that_knows_bfloat16():
    before = interpreter.InterpreterBuilder.create_dot
    interpreter.InterpreterBuilder.create_dot = _dot_of_bfloat16(before)
    yield
    interpreter.InterpreterBuilder.create_dot = before


@pytest.fixture
def buffers(monkeypatch):
    """What `torch.empty` gave out: the middle of a longer buffer full of NaN, of which a kernel may write its part."""
    given_out = []

    def empty(*shape, device, dtype):
        numbers = math.prod(shape[0] if isinstance(shape[0], torch.Size) else shape)
        whole = torch.full((numbers + 512,), torch.nan, device=device, dtype=dtype)
        given_out.append(whole)
        return whole[256 : 256 + numbers].view(*shape)

    monkeypatch.setattr(torch, "empty", empty)
    return given_out


def on_a_device_of(multiprocessors):
    properties = {"multiprocessor_count": multiprocessors}
    utils = SimpleNamespace(get_device_properties=lambda index: properties)
    triton.runtime.driver.set_active(SimpleNamespace(utils=utils))


def example(batch, tokens, heads, size, dtype, seed=0):
    """Scores, values as a slice of a fused projection whose other parts are NaN, and a gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.softmax(2 * torch.randn(heads, tokens, tokens, generator=generator), -1)
    fused = torch.full((batch, tokens, 3, heads, size), torch.nan)
    fused[:, :, 1] = torch.randn(batch, tokens, heads, size, generator=generator)
    by_mixed = torch.randn(batch, tokens, heads, size, generator=generator)
    return scores.to(dtype), fused.to(dtype)[:, :, 1], by_mixed.to(dtype)


def error(got, exact):
    assert bool(torch.isfinite(got).all())
    return float((got.double() - exact).norm() / exact.norm())


def check(scores, values, by_mixed):
    s, v, g = scores.double(), values.double(), by_mixed.double()
    limit = EPSILON[values.dtype]
    by_scores, by_values = launch.gradients(scores, values, by_mixed)
    assert error(launch.mix(scores, values), torch.einsum("hij,bjhd->bihd", s, v)) < limit
    assert error(launch.mix(scores.transpose(1, 2), values), torch.einsum("hji,bjhd->bihd", s, v)) < limit
    assert error(by_values, torch.einsum("hji,bjhd->bihd", s, g)) < limit
    for of_scores in (by_scores, launch.correlate(by_mixed, values)):
        assert error(of_scores, torch.einsum("bihd,bjhd->hij", g, v)) < limit


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mixing_and_its_gradients_match_float64_and_stay_in_their_buffers(shape, buffers):
    """In either dtype by turns, on devices that split the batch into many parts, into few, and not at all."""
    number = SHAPES.index(shape)
    on_a_device_of((132, 8, 1)[number % 3])
    check(*example(*shape, (torch.bfloat16, torch.float16)[number % 2]))
    assert len(buffers) >= 5
    for whole in buffers:
        assert bool(whole[:256].isnan().all())
        assert bool(whole[-256:].isnan().all())


@hypothesis_settings(max_examples=6)
@given(
    tokens=st.integers(1, 300),
    size=st.sampled_from((1, 8, 20, 48, 64, 72, 96)),
    batch=st.integers(1, 4),
    heads=st.integers(1, 2),
    multiprocessors=st.sampled_from((1, 5, 132)),
    dtype=st.sampled_from(tuple(EPSILON)),
    seed=st.integers(0, 99),
)
def test_any_shape(tokens, size, batch, heads, multiprocessors, dtype, seed):
    on_a_device_of(multiprocessors)
    check(*example(batch, tokens, heads, size, dtype, seed))


@pytest.mark.parametrize("tokens", [33, 65, 197, 300])
def test_scores_with_any_strides(tokens):
    """As a part of a larger matrix, whose rest is NaN, and one matrix that all heads share."""
    on_a_device_of(8)
    scores, values, _ = example(2, tokens, 2, 16, torch.float16)
    larger = torch.full((2, tokens + 3, tokens + 5), torch.nan, dtype=torch.float16)
    larger[:, 1 : tokens + 1, 3 : tokens + 3] = scores
    exact = torch.einsum("hij,bjhd->bihd", scores.double(), values.double())
    assert error(launch.mix(larger[:, 1 : tokens + 1, 3 : tokens + 3], values), exact) < EPSILON[torch.float16]
    shared = scores[:1].expand(2, -1, -1)
    exact = torch.einsum("hij,bjhd->bihd", shared.double(), values.double())
    assert error(launch.mix(shared, values), exact) < EPSILON[torch.float16]


def test_plans_that_no_shape_asks_for_by_itself():
    """Every kernel on the same shape, whichever is chosen for it."""
    on_a_device_of(8)
    scores, values, _ = example(3, 70, 2, 24, torch.float16)
    exact = torch.einsum("hij,bjhd->bihd", scores.double(), values.double())
    for plan in (launch.streaming(70, False), launch.row_blocks(70), launch.product_tiling(70)):
        assert error(launch.mix(scores, values, plan), exact) < EPSILON[torch.float16]


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 65, 65), (2, 197, 197), (1, 3, 4097)], ids=str)
def test_softmax_matches_float64(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(shape, generator=generator)).to(dtype)
    by_scores = torch.randn(shape, generator=generator).to(dtype)
    scores = softmax.forward(logits)
    assert error(scores, torch.softmax(logits.double(), -1)) < EPSILON[dtype]
    s, g = scores.double(), by_scores.double()
    exact = s * (g - (s * g).sum(-1, keepdim=True))
    difference = softmax.backward(scores, by_scores).double() - exact
    assert float(difference.norm()) < EPSILON[dtype] * max(float(exact.norm()), 1e-6)


def test_softmax_of_a_row_that_is_minus_infinity_but_once():
    logits = torch.full((1, 3, 100), -torch.inf, dtype=torch.float16)
    logits[..., 5] = 2.0
    assert torch.equal(
        softmax.forward(logits).float(), torch.nn.functional.one_hot(torch.tensor(5), 100).expand(1, 3, -1)
    )


@pytest.mark.parametrize("shape", [(1, 1, 2), (7, 5, 3), (50, 16, 17), (20, 64, 196), (3, 9, 300)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_passes_of_the_descent_match_those_on_a_cpu(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    points, count, dim = shape
    patches = torch.randn(shape, generator=generator, dtype=dtype)
    value = torch.randn(dim, generator=generator, dtype=dtype)
    weight = torch.randn(points, count, generator=generator, dtype=dtype)
    label = torch.randn(points, generator=generator, dtype=dtype).sign()
    limits = {"rtol": 1e-12, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 2e-5, "atol": 2e-4}
    torch.testing.assert_close(descent_kernels.along(patches, value), descent_passes.along(patches, value), **limits)
    total = descent_kernels.weighted_sum(patches, weight)
    torch.testing.assert_close(total, descent_passes.weighted_sum(patches, weight), **limits)
    for degree in (3, 5):
        expected = descent_passes.margins(weight.clone(), label, degree, 0.01)
        for got, exact in zip(descent_kernels.margins(weight, label, degree, 0.01), expected, strict=True):
            torch.testing.assert_close(got, exact, **limits)
