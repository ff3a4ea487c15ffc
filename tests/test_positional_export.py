"""Positional attention exported by torch.export, and by ONNX to what onnxruntime runs with equal results."""

from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from tessella.models.positional_mixing import mix, shared_mix
from tessella.models.vit import ViT, ViTShape

pytestmark = pytest.mark.filterwarnings("default")
"""What the compiler and the exporters warn of is theirs."""

SHAPE = ViTShape(image=8, patch=4, dim=12, depth=2, heads=3, hidden=16, registers=1)
IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
ATTENTION = ["projections", "gram", "matrix"]


@pytest.fixture(autouse=True)
def shapes_unchecked() -> Iterator[None]:
    """The run-time checker of shapes is no code that an exporter could read; users run without it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("attention", ATTENTION)
def test_exported_with_any_batch(attention):
    model = ViT(SHAPE, attention).eval()
    program = torch.export.export(model, (IMAGES,), dynamic_shapes={"images": {0: torch.export.Dim.DYNAMIC}})
    called = [node.target for node in program.graph.nodes]
    assert called.count(torch.ops.tessella.mix.default) == SHAPE.depth
    torch.testing.assert_close(program.module()(IMAGES[:3]), model(IMAGES[:3]))


@pytest.mark.parametrize("attention", ["projections"])
def test_onnxruntime_gives_equal_results(attention, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model, path = ViT(SHAPE, attention).eval(), tmp_path / "model.onnx"
    torch.onnx.export(
        model, (IMAGES,), path, dynamo=True, verbose=False, dynamic_shapes={"images": {0: torch.export.Dim.DYNAMIC}}
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"images": IMAGES[:3].numpy()})
    torch.testing.assert_close(torch.from_numpy(got), model(IMAGES[:3]).detach(), rtol=1e-4, atol=1e-5)


def test_the_operator_is_one_node_that_a_kernel_may_take_over():
    assert str(shared_mix._opoverload) == "tessella.mix.default"
    graph = torch.fx.experimental.proxy_tensor.make_fx(mix)(torch.rand(2, 3, 3), torch.rand(1, 3, 2, 4)).graph
    assert [node.target for node in graph.nodes if node.op == "call_function"] == [torch.ops.tessella.mix.default]
