"""The passes over X on a CUDA device against torch's on a CPU, in float32 and float64."""

import pytest
import torch
from torch import Tensor

from tessella.models import descent_passes

pytestmark = pytest.mark.gpu

SHAPES = [(1, 1, 2), (7, 5, 3), (50, 16, 16), (300, 64, 17), (200, 196, 196), (3, 9, 1000)]


def _drawn(shape: tuple[int, int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    points, count, dim = shape
    patches = torch.randn(shape, generator=generator, dtype=dtype)
    value = torch.randn(dim, generator=generator, dtype=dtype)
    weight = torch.randn(points, count, generator=generator, dtype=dtype)
    return patches, value, weight, torch.randn(points, generator=generator, dtype=dtype).sign()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_passes_agree_with_the_cpu(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    patches, value, weight, label = _drawn(shape, dtype)
    limits = {"rtol": 1e-12, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-3}
    along = descent_passes.along(patches.cuda(), value.cuda())
    torch.testing.assert_close(along.cpu(), descent_passes.along(patches, value), **limits)
    total = descent_passes.weighted_sum(patches.cuda(), weight.cuda())
    torch.testing.assert_close(total.cpu(), descent_passes.weighted_sum(patches, weight), **limits)
    for degree in (3, 5):
        there = descent_passes.margins(weight.cuda(), label.cuda(), degree, 0.01)
        for got, expected in zip(there, descent_passes.margins(weight, label, degree, 0.01), strict=True):
            torch.testing.assert_close(got.cpu(), expected, **limits)


def test_a_huge_margin_overflows_nothing() -> None:
    mixed = torch.tensor([[30.0, 40.0], [-30.0, -40.0]], device="cuda")
    by_mixed, loss = descent_passes.margins(mixed, torch.ones(2, device="cuda"), 3, 0.0)
    assert bool(torch.isfinite(by_mixed).all())
    assert loss.tolist() == [0.0, pytest.approx(30.0**3 + 40.0**3)]


def test_sums_repeat_bit_for_bit() -> None:
    patches, _, weight, _ = _drawn((500, 64, 32), torch.float32)
    here, there = patches.cuda(), weight.cuda()
    assert torch.equal(descent_passes.weighted_sum(here, there), descent_passes.weighted_sum(here, there))
