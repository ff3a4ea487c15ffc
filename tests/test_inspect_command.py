"""`tessella inspect` as a person types it: names, folders and files, several models, and what can go wrong."""

import argparse
import json
import re

import numpy as np
import pytest
import safetensors.torch
import torch
from probe_models import images, timm_model, torchvision_model, transformers_model

from tessella import Extent, ViT, ViTShape, inspect
from tessella.cli.main import main
from tessella.images.cache import drafted
from tessella.images.digits import digits
from tessella.probe.named_models import named
from tessella.probe.pictures import Sight, of_files, pictures
from tessella.probe.run_folders import snapshots
from tessella.probe.weights_file import load_weights, read_weights
from tessella.training.loop import train
from tessella.training.recipe import Recipe

pytestmark = pytest.mark.filterwarnings("default")
"""What other libraries warn of is theirs."""

QUICK = Extent(output_images=0, chance_images=1)


@pytest.fixture
def saved(tmp_path):
    """A small model of transformers, saved as its users save theirs."""
    model = transformers_model("ViTModel", 16)
    model.save_pretrained(tmp_path / "mine")
    return model, tmp_path / "mine"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run on digits, of two steps a state."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    shape = ViTShape(patch=2, dim=8, depth=2, heads=2, hidden=8)
    recipe = Recipe("tiny", "digits", shape, epochs=2, batch=512, warmup=0.0, snapshots=3)
    train(recipe, digits("train"), digits("test"), seed=3, folder=folder)
    return folder


@pytest.fixture(scope="module")
def pictures_folder(tmp_path_factory):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    folder = tmp_path_factory.mktemp("pictures")
    for number, colour in enumerate(("red", "green", "blue")):
        place = folder / ("warm" if colour == "red" else "cold")
        place.mkdir(exist_ok=True)
        image.new("RGB", (40 + number, 30), colour).save(place / f"{colour}.png")
    return folder


def said(arguments, capsys):
    """The code, what was printed, and the one line that went to standard error."""
    code = main(["inspect", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_folder_of_transformers_gives_json_and_a_page(saved, tmp_path, capsys):
    _, folder = saved
    code, out, err = said([folder, "--count", 3, "--json", "-", "--page", tmp_path / "page"], capsys)
    assert code == 0
    (found,) = json.loads(out)
    assert (found["name"], found["library"], found["grid"]) == ("mine", "transformers", [2, 2])
    assert found["images"] == 3
    assert set(found["measures"]) >= {"attention distance", "change of the output", "agreement with encodings"}
    assert "page:" in err
    assert (tmp_path / "page" / "inspection.html").stat().st_size > 10_000


def test_the_folder_s_own_weights_and_others_are_taken(saved, tmp_path):
    model, folder = saved
    given = images(2, 16, 16)
    own = inspect(named(str(folder)), given, extent=QUICK)
    direct = inspect(model, given, extent=QUICK)
    torch.testing.assert_close(own.layers[1].mean_attention, direct.layers[1].mean_attention)
    random = inspect(named(str(folder), "random"), given, extent=QUICK)
    assert not torch.allclose(random.layers[1].mean_attention, direct.layers[1].mean_attention, atol=1e-3)
    torch.save({"state_dict": {f"module.{name}": each for name, each in model.state_dict().items()}}, tmp_path / "a.pt")
    again = inspect(named(str(folder), tmp_path / "a.pt"), given, extent=QUICK)
    torch.testing.assert_close(again.layers[1].mean_attention, direct.layers[1].mean_attention)
    assert again.details["weights"] == "a.pt"


def test_a_checkpoint_with_the_arguments_of_its_training_is_read(tmp_path):
    torch.save({"model": {"a": torch.ones(2)}, "args": argparse.Namespace(lr=0.1)}, tmp_path / "a.pth")
    assert read_weights(tmp_path / "a.pth")["a"].tolist() == [1.0, 1.0]


def test_a_folder_whose_weights_are_of_another_shape_is_one_line(saved, capfd):
    config = saved[1] / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 24', '"hidden_size": 30'))
    code, out, err = said([saved[1], "--count", 1], capfd)
    assert (code, out) == (2, "")
    (line,) = err.strip().splitlines()
    assert re.match(r"tessella: weights: \S+mine does not fit ViTModel: \d+ of another shape \(embeddings", line), line


def test_names_of_timm_and_torchvision_with_weights_from_a_file(tmp_path, monkeypatch):
    timm = pytest.importorskip("timm", reason="the extra [vision] is not installed (timm)")
    models = pytest.importorskip("torchvision", reason="the extra [vision] is not installed (torchvision)").models
    timms = timm_model("vit_tiny_patch16_224", (32, 32))
    plain, small = timm.create_model, {"embed_dim": 24, "depth": 2, "num_heads": 3, "patch_size": 8}
    monkeypatch.setattr(timm, "create_model", lambda name, **options: plain(name, **small, **options))
    safetensors.torch.save_file(timms.state_dict(), tmp_path / "t.safetensors")
    subject = named("vit_tiny_patch16_224", tmp_path / "t.safetensors", (32, 32))
    assert (subject.sight.size, subject.sight.mean) == ((32, 32), (0.5, 0.5, 0.5))
    given = images(2, 32, 32)
    assert torch.equal(subject.tower(given), timms(given))
    assert subject.fresh(0).head.out_features == 5  # as many classes as the checkpoint has
    monkeypatch.setattr(models, "get_model", lambda name, **options: torchvision_model(32))
    torch.save(torchvision_model(32).state_dict(), tmp_path / "v.pth")
    assert named("torchvision/vit_b_16", tmp_path / "v.pth").tower.library == "torchvision"


def test_an_exported_program_is_read_like_the_model_it_was_made_from(tmp_path):
    model, given = timm_model("vit_small_patch14_reg4_dinov2", (24, 40)), images(2, 24, 40)
    batch = torch.export.Dim("batch", min=1, max=64)
    for name, dynamic in (("any", ({0: batch},)), ("two", None)):
        program = torch.export.export(model, (given,), dynamic_shapes=dynamic)
        torch.export.save(program, tmp_path / f"{name}.pt2")
        subject = named(str(tmp_path / f"{name}.pt2"))
        assert subject.sight.size == (24, 40)
        found = inspect(subject, given, extent=QUICK)
        direct = inspect(model, given, extent=QUICK)
        assert found.prefix == direct.prefix
        assert len(found.layers) == found.images == 2
        for layer, own in zip(found.layers, direct.layers, strict=True):
            torch.testing.assert_close(layer.mean_attention, own.mean_attention, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(found.encodings.similarities, direct.encodings.similarities)


def test_a_run_folder_is_read_as_it_ended_and_at_its_steps(run_folder, capsys):
    code, out, _ = said([run_folder, "--count", 4, "--steps", "--json", "-"], capsys)
    assert code == 0
    found = json.loads(out)
    assert [each["step"] for each in found] == sorted({each["step"] for each in found})
    assert len(found) == 3
    assert {each["name"] for each in found} == {"digits"}
    first, *_, last = snapshots(run_folder)
    began = ViT(ViTShape(image=8, patch=2, channels=1, dim=8, depth=2, heads=2, hidden=8), seed=3)
    assert all(torch.equal(a, b) for a, b in zip(first.tower.model.parameters(), began.parameters(), strict=True))
    ended = named(str(run_folder)).tower.model
    assert all(torch.equal(a, b) for a, b in zip(last.tower.model.parameters(), ended.parameters(), strict=True))


def test_a_run_s_images_are_normalised_as_it_saw_them_and_its_classes_named(run_folder):
    subject = named(str(run_folder))
    mean, deviation = digits("train").statistics()
    assert subject.sight.mean == pytest.approx(mean.tolist())
    assert subject.sight.deviation == pytest.approx(deviation.tolist())
    found = inspect(subject, "digits", extent=Extent(output_images=0, chance_images=1, examples=2))
    assert found.images == 450
    assert [example.name for example in found.examples] == ["digit 1", "digit 2"]
    assert {example.prediction for example in found.examples} <= set("0123456789")
    assert [example.label for example in found.examples] == [str(label) for label in digits("test").labels[:2]]


def test_models_side_by_side_are_told_apart_by_their_weights(run_folder, capsys):
    arguments = [run_folder, run_folder, "--weights", run_folder / "weights.safetensors", "--weights", "random"]
    code, out, _ = said([*arguments, "--count", 3, "--json", "-"], capsys)
    assert code == 0
    names = [each["name"] for each in json.loads(out)]
    assert names == ["digits, weights.safetensors", "digits, random, as the run began"]


def test_the_table_says_what_the_json_does(run_folder, tmp_path, capsys):
    code, out, _ = said([run_folder, "--count", 3, "--json", tmp_path / "a.json"], capsys)
    assert code == 0
    assert "4 x 4 patches of 2 x 2 pixels" in out
    (found,) = json.loads((tmp_path / "a.json").read_text())
    assert all(name in out for name in found["measures"])


def test_pictures_are_cropped_to_what_the_model_wants_and_named_by_their_folders(pictures_folder):
    sight = Sight((16, 24), 3, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    found = of_files(pictures_folder, sight)
    assert list(found.names) == ["cold/blue.png", "cold/green.png", "warm/red.png"]
    assert list(found.labels) == ["cold", "cold", "warm"]
    (batch,) = found.batches(8)
    assert batch.shape == (3, 3, 16, 24)
    blue = (torch.tensor([0.0, 0.0, 1.0]) - torch.tensor(sight.mean)) / torch.tensor(sight.deviation)
    torch.testing.assert_close(batch[0, :, 3, 3], blue)
    assert sight.shown(batch[0])[0, 0].tolist() == [0, 0, 255]
    assert next(of_files(pictures_folder, Sight((8, 8), 1, (0.0,), (1.0,))).batches(1)).shape == (1, 1, 8, 8)


def test_a_prepared_set_shows_its_held_out_images_with_their_classes(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    with drafted(tmp_path / "set") as draft:
        for split, order in (("train", [2, 1, 0]), ("test", [0, 1, 2])):
            path = draft.images_file(split, pixels.shape)
            np.lib.format.open_memmap(path, mode="r+")[:] = pixels[order]
            draft.write_labels(split, np.array([0, 1, 1])[order])
        draft.finish("cifar10", "a test", ("cat", "dog"), lambda _: None)
    found = pictures(str(tmp_path / "set"), Sight((8, 8), 3, (0.0,) * 3, (1.0,) * 3))
    assert (found.count, found.source) == (3, "cifar10, held out")
    assert (list(found.names), list(found.labels)) == (["1: cat", "2: dog", "3: dog"], ["cat", "dog", "dog"])
    batches = torch.cat(list(found.batches(2)))
    torch.testing.assert_close(batches, torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)


def test_pictures_of_any_size_are_cropped_to_any_other(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    sizes = [(wide, high) for wide in (1, 37, 256, 341, 500) for high in (1, 99, 256, 375)]
    for number, size in enumerate(sizes):
        image.new("RGB", size).save(tmp_path / f"{number}.png")
    for wanted in ((48, 96), (96, 48), (32, 32), (7, 224)):
        assert sum(len(batch) for batch in of_files(tmp_path, Sight(wanted)).batches(8)) == len(sizes)


def test_models_of_torchvision_that_are_no_vits_are_read_or_refused():
    models = pytest.importorskip("torchvision", reason="the extra [vision] is not installed (torchvision)").models
    torch.manual_seed(0)
    swin = models.SwinTransformer([2, 2], 12, [1, 1], [1, 2], [4, 4], num_classes=3).eval()
    assert [layer.windows for layer in inspect(swin, images(1, 32, 32), extent=QUICK).layers] == [16, 4]
    with pytest.raises(ValueError, match=r"^model: no self-attention was seen to run in ResNet"):
        inspect(models.resnet18(weights=None), images(1, 32, 32), extent=QUICK)


def test_batches_of_a_loader_are_streamed_with_their_labels_left_out():
    loader = [(images(2, 16, 16), torch.zeros(2)), (images(1, 16, 16), torch.zeros(1))]
    model = ViT(ViTShape(image=16, patch=4, dim=8, depth=1, heads=2))
    assert inspect(model, loader, extent=QUICK).images == 3
    with pytest.raises(ValueError, match=r"^images: got generator, expected a tensor, a folder"):
        pictures((batch for batch in loader), Sight())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing_of_that_name"], r"model: got 'nothing_of_that_name', expected a name of timm or torchvision"),
        (["{tmp}"], r"model: \S+ has no config.json, expected a folder of transformers or of a run"),
        (["{tmp}/a.png"], r"model: got the file \S+a.png, expected an exported program"),
        (["{tmp}/broken.pt2"], r"model: \S+broken.pt2 cannot be read as an exported program"),
        (["{run}", "--weights", "{tmp}/none.pt"], r"weights: got '\S+none.pt', which is no file"),
        (["{run}", "--weights", "{tmp}/broken.pt"], r"weights: \S+broken.pt cannot be read as a checkpoint of tensors"),
        (["{run}", "--weights", "{tmp}/broken.safetensors"], r"weights: \S+ cannot be read as safetensors"),
        (
            ["{run}", "--weights", "{tmp}/code.pt"],
            r"weights: \S+code.pt holds \S*print, and nothing but tensors and plain values is read",
        ),
        (
            ["{run}", "--weights", "{tmp}/other.pt"],
            r"weights: \S+other.pt does not fit ViT: \d+ missing \(prefix_tokens, positions, embed.bias, ...\), "
            r"1 not expected \(extra\), 1 of another shape \(embed.weight 2 x 3 for 8 x 4\)",
        ),
        (["{run}", "--weights", "{tmp}/whole.pt"], r"weights: \S+whole.pt holds torch.nn.modules.linear.Linear, and "),
        (["{run}", "--weights", "{tmp}/teacher.pt"], r"weights: \S+teacher.pt holds a dict of epoch, name without"),
        (["{run}", "--images", "{tmp}/empty"], r"images: got \S+empty, which holds no images"),
        (["{run}", "--images", "{tmp}/nowhere"], r"images: got '\S+nowhere', which is not there"),
        (["{run}", "--images", "{tmp}/a.png"], r"images: \S+a.png cannot be read as an image"),
        (["{run}", "--layers", "7"], r"layers: got 7, expected 0 to 1"),
        (["{run}", "--partition", "{tmp}/labels.json"], r"partition: got 4 patches, expected the model's 4 x 4"),
        (["{run}", "--partition", "{tmp}/a.png"], r"partition: \S+a.png cannot be read"),
        (
            ["{run}", "--partition", "{tmp}/named.json"],
            r"partition: \S+named.json cannot be read \(it holds a dict\), expected a JSON list of labels",
        ),
        (["{run}", "--weights", "random", "--weights", "random"], r"weights: got 2 for 1 models"),
        (["{run}", "{run}"], r"model: got the same one twice"),
        (["{run}", "--device", "tpu"], r"device: got 'tpu'"),
        (["{run}", "--page", "{tmp}/a.png"], r"folder: got \S+a.png, which is a file"),
        (["vit_tiny_patch16_224", "--steps"], r"steps: got 'vit_tiny_patch16_224', expected a run folder"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, message, run_folder, tmp_path, capsys):
    pytest.importorskip("timm", reason="the extra [vision] is not installed (timm)")
    (tmp_path / "empty").mkdir()
    for name in ("a.png", "broken.pt2", "broken.pt", "broken.safetensors"):
        (tmp_path / name).write_bytes(b"not what its name says")
    torch.save({"run": print}, tmp_path / "code.pt")
    torch.save(torch.nn.Linear(1, 1), tmp_path / "whole.pt")
    torch.save({"epoch": 3, "name": "teacher"}, tmp_path / "teacher.pt")
    torch.save(
        {"embed.weight": torch.zeros(2, 3), "extra": torch.zeros(1), "head.bias": torch.zeros(10)},
        tmp_path / "other.pt",
    )
    (tmp_path / "labels.json").write_text("[0, 0, 1, 1]")
    (tmp_path / "named.json").write_text('{"labels": [0, 0, 1, 1]}')
    before = sorted(tmp_path.rglob("*"))
    filled = [each.format(tmp=tmp_path, run=run_folder) for each in arguments]
    code, out, err = said(
        [*filled, "--count", 2, "--page", tmp_path / "page"] if "--page" not in filled else filled, capsys
    )
    assert code == 2
    assert out == ""
    (line,) = err.strip().splitlines()
    assert re.match(f"tessella: {message}", line), line
    assert [each for each in sorted(tmp_path.rglob("*")) if each.name != "page"] == before


def test_weights_that_are_not_finite_and_files_without_tensors_are_refused(tmp_path):
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r"^weights: a has numbers that are not finite in bias"):
        load_weights(model, {"weight": torch.zeros(1, 1), "bias": torch.tensor([float("nan")])}, "a")
    torch.save({"epoch": 3}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"a\.pt holds a dict of epoch without tensors, expected a model's state dict"):
        read_weights(tmp_path / "a.pt")


def test_an_unfinished_run_is_not_inspected_as_ended(run_folder, tmp_path):
    (tmp_path / "config.json").write_text((run_folder / "config.json").read_text())
    with pytest.raises(ValueError, match=r"has no weights.safetensors yet, expected a run that has ended"):
        named(str(tmp_path))
    with pytest.raises(ValueError, match=r"has no snapshots, expected a run of a recipe that keeps some"):
        snapshots(tmp_path)


@pytest.mark.gpu
def test_a_gpu_sees_the_same_attention():
    model, given = timm_model("vit_tiny_patch16_224", (32, 32)), images(4, 32, 32)
    own = inspect(model, given, extent=QUICK)
    on_gpu = inspect(model.cuda(), given, extent=QUICK)
    for name, measured in own.measures.items():
        torch.testing.assert_close(on_gpu.measures[name].values, measured.values, atol=2e-3, rtol=2e-2, msg=name)
    torch.testing.assert_close(on_gpu.layers[0].mean_attention, own.layers[0].mean_attention, atol=1e-4, rtol=1e-2)
