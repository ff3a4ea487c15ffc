"""The mixing operator against an explicit loop over Definition 3.2, in every dtype, and as a citizen of torch."""

import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import forward_ad

from tessella.models.positional_mixing import correlate, mix, mix_gradients, shared_mix

SHAPES = [(2, 1, 1, 4), (1, 5, 3, 1), (3, 65, 2, 8), (2, 197, 2, 16), (2, 257, 1, 3)]
EPSILON = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""About twice the unit roundoff of each dtype: inputs are exact, products accumulate wider, one rounding is left."""


def example(batch, tokens, heads, size, dtype=torch.float64, seed=0, requires_grad=False):
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(heads, tokens, tokens, generator=generator, dtype=torch.float64)
    values = torch.randn(batch, tokens, heads, size, generator=generator, dtype=torch.float64).to(dtype)
    scores = torch.softmax(raw, -1).to(dtype)
    return scores.requires_grad_(requires_grad), values.requires_grad_(requires_grad)


def by_loop(scores, values):
    """Definition 3.2, line by line: for an image and a head, S times V."""
    out = torch.zeros_like(values)
    for b in range(values.shape[0]):
        for h in range(values.shape[2]):
            out[b, :, h] = scores[h] @ values[b, :, h]
    return out


def error(got, exact):
    return float(((got.double() - exact).norm() / exact.norm()).detach())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", EPSILON)
def test_mix_and_its_gradients_match_the_loop_in_float64(shape, dtype):
    scores, values = example(*shape, dtype, requires_grad=True)
    by_output = torch.randn(values.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    exact_inputs = [each.detach().double().requires_grad_() for each in (scores, values)]
    exact = by_loop(*exact_inputs)
    exact_gradients = torch.autograd.grad(exact, exact_inputs, by_output.double())
    got = mix(scores, values)
    gradients = torch.autograd.grad(got, (scores, values), by_output)
    assert got.dtype == dtype
    assert got.is_contiguous()
    assert error(got, exact) < EPSILON[dtype]
    for gradient, exact_gradient in zip(gradients, exact_gradients, strict=True):
        assert gradient.dtype == dtype
        assert error(gradient, exact_gradient) < EPSILON[dtype]


@given(
    st.integers(0, 3),
    st.integers(1, 140),
    st.integers(1, 3),
    st.integers(1, 9),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 99),
)
def test_any_shape_and_any_strides(batch, tokens, heads, size, dtype, seed):
    scores, _ = example(1, tokens, heads, 1, dtype, seed)
    fused = torch.randn(batch, tokens, 3, heads, size, generator=torch.Generator().manual_seed(seed)).to(dtype)
    values = fused[:, :, 2]
    torch.testing.assert_close(mix(scores.transpose(1, 2), values), by_loop(scores.transpose(1, 2), values))


def test_16384_tokens():
    scores = torch.zeros(1, 16384, 16384)
    index = torch.arange(16384)
    scores[0, index, (index + 1) % 16384] = 1.0
    values = torch.randn(1, 16384, 1, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(mix(scores, values), values.roll(-1, dims=1))


def test_a_row_of_scores_that_sums_to_one_keeps_constant_values():
    scores, values = example(2, 65, 3, 4)
    torch.testing.assert_close(mix(scores, torch.ones_like(values)), torch.ones_like(values))


def test_gradcheck_and_gradgradcheck():
    scores, values = example(2, 3, 2, 2, requires_grad=True)
    assert torch.autograd.gradcheck(mix, (scores, values))
    assert torch.autograd.gradgradcheck(mix, (scores, values))


@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (1, 1, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:UserWarning")
def test_opcheck_passes(shape, dtype):
    scores, values = example(*shape, dtype, requires_grad=True)
    torch.library.opcheck(shared_mix, (scores, values))
    torch.library.opcheck(correlate, (values, values.detach().clone().requires_grad_()))
    torch.library.opcheck(mix_gradients, (scores, values, values.detach().clone().requires_grad_()))


def test_the_third_operator_is_the_derivative_of_the_first_and_has_derivatives_of_its_own():
    scores, values = example(2, 3, 2, 2, requires_grad=True)
    by_mixed = torch.randn(values.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.autograd.grad(mix(scores, values), (scores, values), by_mixed)
    for got, exact in zip(mix_gradients(scores, values, by_mixed), expected, strict=True):
        torch.testing.assert_close(got, exact)
    assert torch.autograd.gradcheck(mix_gradients, (scores, values, by_mixed.requires_grad_()))


def test_autocast_brings_both_to_its_dtype_and_gradients_back():
    scores, values = example(2, 9, 2, 4, torch.float32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = mix(scores, values)
    assert mixed.dtype == torch.bfloat16
    by_scores, by_values = torch.autograd.grad(mixed.float().sum(), (scores, values))
    assert by_scores.dtype == by_values.dtype == torch.float32
    double = example(2, 9, 2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert mix(*double).dtype == torch.float64


def test_scores_of_each_image():
    scores, values = example(3, 6, 2, 4)
    own = torch.stack([scores.roll(b, 2) for b in range(3)])
    expected = torch.cat([mix(own[b], values[b : b + 1]) for b in range(3)])
    torch.testing.assert_close(mix(own, values), expected)


def test_what_does_not_fit_is_named():
    scores, values = example(2, 5, 3, 4)
    with pytest.raises(ValueError, match=r"scores: got shape \(3, 4, 4\), expected \(3, 5, 5\)"):
        mix(scores[:, :4, :4], values)
    with pytest.raises(ValueError, match=r"scores: got torch.float32, expected torch.float64"):
        mix(scores.float(), values)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_forward_mode_and_function_transforms_have_their_derivatives():
    scores, values = example(2, 5, 3, 2)
    along = tuple(
        torch.randn(each.shape, generator=torch.Generator().manual_seed(1)).double() for each in example(2, 5, 3, 2)
    )
    mixed, by_jvp = torch.func.jvp(mix, (scores, values), along)
    exact = by_loop(along[0], values) + by_loop(scores, along[1])
    torch.testing.assert_close(mixed, by_loop(scores, values))
    torch.testing.assert_close(by_jvp, exact)
    with forward_ad.dual_level():
        dual = mix(*(forward_ad.make_dual(*each) for each in zip((scores, values), along, strict=True)))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, exact)
    by_scores = torch.func.grad(lambda s: mix(s, values).square().sum())(scores)
    torch.testing.assert_close(by_scores, 2 * correlate(mix(scores, values), values))
    assert torch.func.jacrev(mix)(scores, values).shape == (2, 5, 3, 2, 3, 5, 5)
    hessian = torch.func.hessian(lambda v: mix(scores, v).square().sum())(values[:1])
    assert hessian.abs().sum() > 0
    torch.testing.assert_close(torch.vmap(mix, (None, 0))(scores, values[:, None])[:, 0], by_loop(scores, values))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_gradcheck_in_forward_mode():
    scores, values = example(2, 4, 2, 3, requires_grad=True)
    assert torch.autograd.gradcheck(mix, (scores, values), check_forward_ad=True)


def test_complex_numbers_are_refused():
    scores, values = example(1, 3, 2, 2)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=r"scores: got torch.complex128, expected a real dtype"):
            mix(scores.to(torch.complex128), values)
        with pytest.raises(ValueError, match=r"values: got torch.complex128, expected a real dtype"):
            mix(scores, values.to(torch.complex128))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_the_meta_device_gives_shapes():
    scores, values = (each.to("meta") for each in example(2, 5, 3, 2))
    assert mix(scores, values).shape == (2, 5, 3, 2)
