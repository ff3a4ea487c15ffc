"""The Triton kernels of positional mixing against float64 on a CUDA device, gradients included."""

import warnings

import pytest
import torch

from tessella.models.positional_mixing import correlate, mix, mix_gradients, shared_mix

pytestmark = pytest.mark.gpu

SHAPES = [
    (3, 1, 2, 4),
    (2, 5, 3, 1),
    (7, 16, 2, 8),
    (33, 17, 3, 24),
    (64, 64, 12, 32),
    (65, 65, 12, 32),
    (129, 80, 3, 64),
    (2, 81, 3, 80),
    (9, 128, 4, 32),
    (4, 145, 3, 64),
    (5, 197, 6, 64),
    (3, 230, 4, 64),
    (3, 256, 2, 40),
    (3, 257, 4, 64),
    (2, 577, 2, 72),
    (2, 1024, 3, 64),
    (1, 2049, 2, 40),
]
EPSILON = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-5}
"""About twice the unit roundoff of the short dtypes; for float32, its products are summed in float32."""


@pytest.fixture(autouse=True)
def _exact_float32_and_silence():
    """TF32 is torch's to set; that float32 runs by matrix products is said once, as a warning."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch's matrix products are used")
        yield
    torch.backends.cuda.matmul.allow_tf32 = before


def example(batch, tokens, heads, size, dtype, seed=0):
    """Scores, values as a slice of a fused projection, and a gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.softmax(torch.randn(heads, tokens, tokens, generator=generator), -1)
    fused = torch.randn(batch, tokens, 3, heads, size, generator=generator)
    by_mixed = torch.randn(batch, tokens, heads, size, generator=generator)
    return scores.cuda().to(dtype), fused.cuda().to(dtype)[:, :, 2], by_mixed.cuda().to(dtype)


def error(got, exact):
    assert bool(torch.isfinite(got).all())
    return float((got.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", EPSILON, ids=str)
def test_mixing_and_both_gradients_match_float64(shape, dtype):
    scores, values, by_mixed = example(*shape, dtype)
    s, v, g = scores.double(), values.double(), by_mixed.double()
    by_scores, by_values = mix_gradients(scores, values, by_mixed)
    assert error(mix(scores, values), torch.einsum("hij,bjhd->bihd", s, v)) < EPSILON[dtype]
    assert error(by_values, torch.einsum("hji,bjhd->bihd", s, g)) < EPSILON[dtype]
    assert error(by_scores, torch.einsum("bihd,bjhd->hij", g, v)) < EPSILON[dtype]
    assert error(correlate(by_mixed, values), torch.einsum("bihd,bjhd->hij", g, v)) < EPSILON[dtype]
    transposed = scores.transpose(1, 2)
    assert error(shared_mix(transposed, values), torch.einsum("hji,bjhd->bihd", s, v)) < EPSILON[dtype]


def test_autograd_takes_the_kernels_and_gives_what_they_give():
    scores, values, by_mixed = example(9, 65, 4, 32, torch.bfloat16)
    leaves = scores.clone().requires_grad_(), values.clone().requires_grad_()
    found = torch.autograd.grad(mix(*leaves), leaves, by_mixed)
    for got, expected in zip(found, mix_gradients(scores, values, by_mixed), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("tokens", [65, 197, 1024])
def test_sums_repeat_bit_for_bit(tokens):
    scores, values, by_mixed = example(40, tokens, 3, 64, torch.bfloat16)
    first, second = (mix_gradients(scores, values, by_mixed) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_every_number_is_written():
    """Into memory that held NaN before."""
    scores, values, _ = example(66, 197, 3, 48, torch.bfloat16)
    poison = torch.full((4 * values.numel(),), torch.nan, device="cuda", dtype=torch.bfloat16)
    del poison
    assert bool(torch.isfinite(mix(scores, values)).all())


def test_16384_tokens():
    scores = torch.zeros(1, 16384, 16384, device="cuda", dtype=torch.bfloat16)
    index = torch.arange(16384, device="cuda")
    scores[0, index, (index + 1) % 16384] = 1.0
    values = torch.randn(2, 16384, 1, 16, device="cuda").bfloat16()
    torch.testing.assert_close(mix(scores, values), values.roll(-1, dims=1))


def test_compiled_and_captured_in_a_graph():
    scores, values, _ = example(8, 65, 4, 32, torch.bfloat16)
    expected = mix(scores, values)
    torch.testing.assert_close(torch.compile(mix, fullgraph=True)(scores, values), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mixed = mix(scores, values)
    mixed.zero_()
    graph.replay()
    torch.testing.assert_close(mixed, expected, rtol=0, atol=0)


def test_what_falls_back_says_so(recwarn):
    from tessella.models import kernel_choice

    kernel_choice._without.cache_clear()
    scores, values, _ = example(2, 5, 2, 4, torch.float32)
    with pytest.warns(UserWarning, match="no kernel for torch.float32, but for float16 and bfloat16"):
        mix(scores, values)
