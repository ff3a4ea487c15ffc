"""Softmax by rows against torch's in float64, its derivatives, and as an operator."""

import pytest
import torch

from tessella.models.row_softmax import row_softmax, softmax_rows, softmax_rows_backward

EPSILON = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


def drawn(*shape, dtype=torch.float64, device="cpu", seed=0):
    return (3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).to(
        device, dtype
    )


def error(got, exact):
    return float((got.double() - exact).norm() / exact.norm())


def by_definition(scores, by_scores):
    """The Jacobian of a softmax, row by row: diag(s) - s s^T."""
    s, g = scores.double(), by_scores.double()
    return torch.einsum("...ij,...j->...i", torch.diag_embed(s) - s[..., :, None] * s[..., None, :], g)


@pytest.mark.parametrize("dtype", EPSILON)
def test_scores_and_gradient_are_those_of_the_definition(dtype):
    logits, by_scores = drawn(2, 7, 33, dtype=dtype), drawn(2, 7, 33, dtype=dtype, seed=1)
    for softmax in (row_softmax, softmax_rows):
        leaf = logits.clone().requires_grad_()
        scores = softmax(leaf)
        assert scores.dtype == dtype
        assert error(scores.detach(), torch.softmax(logits.double(), -1)) < EPSILON[dtype]
        (gradient,) = torch.autograd.grad(scores, leaf, by_scores)
        # The derivative is taken at S as it was rounded, which takes part in a difference.
        assert error(gradient, by_definition(scores.detach(), by_scores)) < 3 * EPSILON[dtype]


def test_gradcheck_and_gradgradcheck():
    assert torch.autograd.gradcheck(softmax_rows, (drawn(2, 3, 4).requires_grad_(),))
    assert torch.autograd.gradgradcheck(softmax_rows, (drawn(2, 3, 4).requires_grad_(),))


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:UserWarning")
def test_opcheck_passes():
    torch.library.opcheck(softmax_rows, (drawn(2, 3, 5, dtype=torch.float32).requires_grad_(),))
    torch.library.opcheck(softmax_rows_backward, (drawn(2, 3, 5), drawn(2, 3, 5, seed=1)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1, 1), (12, 65, 65), (3, 197, 197), (2, 50, 4096), (1, 7, 16384), (1, 2, 20000)])
def test_kernels_match_float64(shape, dtype):
    logits, by_scores = drawn(*shape, dtype=dtype, device="cuda"), drawn(*shape, dtype=dtype, device="cuda", seed=1)
    scores = softmax_rows(logits)
    assert error(scores, torch.softmax(logits.double(), -1)) < EPSILON[dtype]
    s, g = scores.double(), by_scores.double()
    exact = s * (g - (s * g).sum(-1, keepdim=True))
    difference = softmax_rows_backward(scores, by_scores).double() - exact
    assert float(difference.norm()) < EPSILON[dtype] * max(float(exact.norm()), 1e-6)


@pytest.mark.gpu
def test_a_row_of_minus_infinity_but_one_is_that_one():
    logits = torch.full((1, 3, 100), -torch.inf, device="cuda", dtype=torch.bfloat16)
    logits[..., 5] = 2.0
    assert bool((softmax_rows(logits) == torch.nn.functional.one_hot(torch.tensor(5), 100).cuda()).all())


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_gradcheck_in_forward_mode():
    assert torch.autograd.gradcheck(row_softmax, (drawn(2, 3, 4).requires_grad_(),), check_forward_ad=True)
