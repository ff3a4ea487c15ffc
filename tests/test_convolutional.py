"""The convolutional networks of Figure 5, against torchvision's own and against what makes them convolutional."""

import sys

import pytest
import torch

from tessella.models.convolutional import Residual, network


@pytest.mark.parametrize("name", ["small_resnet", "small_vgg"])
def test_a_seed_names_one_network_and_leaves_the_global_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    first, again, other = (network(name, 1, 10, seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", ["small_resnet", "small_vgg"])
def test_every_parameter_of_a_small_network_gets_a_gradient(name: str) -> None:
    made = network(name, 1, 10, seed=0)
    logits = made(torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    torch.nn.functional.cross_entropy(logits, torch.arange(8)).backward()
    assert all(each.grad is not None and bool(each.grad.any()) for each in made.parameters())
    assert sum(each.numel() for each in made.parameters()) < 100_000


def test_a_residual_block_is_torchvisions_basic_block() -> None:
    pytest.importorskip("torchvision")
    from torchvision.models.resnet import BasicBlock

    down = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 1, 2, bias=False), torch.nn.BatchNorm2d(6))
    theirs, ours = BasicBlock(4, 6, 2, down).eval(), Residual(4, 6, 2).eval()
    paired = {"conv1": "body.0.0", "bn1": "body.0.1", "conv2": "body.2.0", "bn2": "body.2.1", "downsample": "skip"}
    state = {}
    for name, tensor in theirs.state_dict().items():
        part, rest = name.split(".", 1)
        state[f"{paired[part]}.{rest}"] = tensor
    ours.load_state_dict(state)
    images = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(images), theirs(images))


def test_torchvisions_networks_keep_their_resolution_where_images_are_small() -> None:
    pytest.importorskip("torchvision")
    with torch.no_grad():
        made = network("resnet18", 3, 100, seed=0).eval()
        sizes: list[torch.Size] = []
        made.layer1.register_forward_hook(lambda module, given, found: sizes.append(found.shape))  # type: ignore[union-attr, operator]
        assert made(torch.zeros(1, 3, 32, 32)).shape == (1, 100)
        assert sizes == [(1, 64, 32, 32)]
        plain = network("vgg19", 3, 100, seed=0).eval()
        assert plain(torch.zeros(1, 3, 32, 32)).shape == (1, 100)
    # Sixteen convolutions and one linear layer: VGG-19 less its two wide layers.
    kinds = [type(each).__name__ for each in plain.modules()]
    assert (kinds.count("Conv2d"), kinds.count("Linear")) == (16, 1)


def test_wrong_names_and_a_missing_extra_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"network: got 'alexnet', expected one of resnet18, vgg19"):
        network("alexnet", 3, 10, 0)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ValueError, match=r"network: torchvision cannot be imported .*pip install 'tessella\[vision\]'"):
        network("resnet18", 3, 10, 0)
