"""The benchmark of the report, at a size that takes a moment."""

import pytest

from tessella import ViT, ViTShape
from tessella.bench.inspection import BATCH, drawn, on_cpu, on_gpu
from tessella.cli.main import BENCHES

SMALL = ViTShape(image=16, patch=4, classes=3, dim=8, depth=2, heads=2, hidden=8)


def test_the_report_and_its_page_are_timed_against_two_plain_passes() -> None:
    record = on_cpu(ViT(SMALL).eval(), 4).as_json()
    assert record["peer"] == "two plain forward passes"
    assert record["ours_ms"] == pytest.approx(record["inspect ms"] + record["page ms"])
    assert record["ratio"] == pytest.approx(1 / record["times two plain passes"])
    assert record["page bytes"] > 10_000
    assert BENCHES["inspect"] == "inspection"


def test_images_are_as_many_as_asked_and_the_same_each_time() -> None:
    images = drawn(ViT(SMALL), 1100)
    assert sum(map(len, images.batches(BATCH["cpu"]))) == 1100
    assert sum(map(len, images.first(700, 64))) == 700
    first, again = (next(images.batches(8)) for _ in range(2))
    assert (first == again).all()


@pytest.mark.gpu
def test_a_gpu_times_the_report_against_one_pass() -> None:
    record = on_gpu(ViT(SMALL).cuda().bfloat16().eval(), "cuda", 200).as_json()
    assert record["peer"] == "one plain forward pass"
    assert record["images a second"] > 0
