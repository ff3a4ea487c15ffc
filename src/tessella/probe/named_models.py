"""Models by name or path: timm, torchvision, a folder of transformers, a run folder, an exported program."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tessella.probe.pictures import Sight
from tessella.probe.subject import Subject, of_module, sight
from tessella.probe.tower import tower
from tessella.probe.weights_file import load_weights, read_weights, reason, some

RANDOM = "random"
"""What stands for a model's weights where none are wanted."""

Pair = tuple[int, int]


def named(model: str, weights: str | Path | None = None, size: Pair | None = None) -> Subject:
    """What `tessella inspect` is given. Without `weights` they are the library's own, or those of the folder.

    `weights` is a file, or "random". `size` is the images' height and width, where the model takes several.
    """
    path = Path(model)
    if path.is_file() and path.suffix == ".pt2":
        return _exported(path, weights)
    if path.is_dir():
        config = _config(path)
        if "model_type" in config or "architectures" in config:
            return _transformers(path, config, weights, size)
        from tessella.probe.run_folders import of_run

        return of_run(path, weights)
    if path.exists():
        raise ValueError(f"model: got the file {path}, expected an exported program (.pt2), a folder, or a name")
    library, name = _library(model)
    return (_timm if library == "timm" else _torchvision)(name, weights, size)


def _library(model: str) -> tuple[str, str]:
    """timm or torchvision, and the name there; `timm/NAME` and `torchvision/NAME` choose."""
    given, slash, name = model.partition("/")
    wanted = (given,) if slash and given in ("timm", "torchvision") else ("timm", "torchvision")
    name, absent = name if len(wanted) == 1 else model, []
    for library in wanted:
        try:
            if name.partition(".")[0] in _names(library):
                return library, name
        except ValueError as error:
            absent.append(str(error).removeprefix("model: "))
    raise ValueError(
        f"model: got {model!r}, expected a name of timm or torchvision, a folder of transformers or of a run, or a "
        f".pt2 file{''.join(f'; {each}' for each in absent)}"
    )


def _names(library: str) -> set[str]:
    module = _imported(library)
    return set(module.list_models() if library == "timm" else module.models.list_models(module=module.models))


def _imported(library: str) -> Any:
    extra = "hf" if library == "transformers" else "vision"
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ValueError(f"model: {error.name} is not installed; pip install 'tessella[{extra}]'") from error
    except (ImportError, RuntimeError) as error:  # torchvision beside a torch that it was not built for
        raise ValueError(f"model: {library} does not import here ({reason(error)})") from error


def _timm(name: str, weights: str | Path | None, size: Pair | None) -> Subject:
    timm = _imported("timm")
    state = _state(weights)
    options: dict[str, Any] = {} if size is None else {"img_size": size}
    for head in ("head.weight", "head.fc.weight"):
        if head in state:
            options["num_classes"] = len(state[head])  # a checkpoint of one's own has one's own classes

    def fresh(seed: int) -> nn.Module:
        return _seeded(lambda: timm.create_model(name, pretrained=False, **options), seed)

    try:
        if weights is None:
            made: nn.Module = timm.create_model(name, pretrained=True, **options)
        else:
            made = fresh(0)
    except Exception as error:  # what downloads and constructors raise is theirs, and of every kind
        raise _not_made(name, weights, error) from error
    return _subject(made, name, weights, state, fresh, None)


def _torchvision(name: str, weights: str | Path | None, size: Pair | None) -> Subject:
    models = _imported("torchvision").models
    state = _state(weights)
    options: dict[str, Any] = {}
    if "heads.head.weight" in state:
        options["num_classes"] = len(state["heads.head.weight"])
    if size is not None:
        if size[0] != size[1]:
            raise ValueError(f"size: got {size[0]} x {size[1]}, expected a square, which {name} needs")
        options["image_size"] = size[0]

    def fresh(seed: int) -> nn.Module:
        return _seeded(lambda: models.get_model(name, weights=None, **options), seed)

    try:
        made: nn.Module = fresh(0) if weights is not None else models.get_model(name, weights="DEFAULT", **options)
    except Exception as error:
        raise _not_made(name, weights, error) from error
    return _subject(made, name, weights, state, fresh, None)


def _transformers(path: Path, config: dict[str, Any], weights: str | Path | None, size: Pair | None) -> Subject:
    transformers = _imported("transformers")
    wanted = (config.get("architectures") or [None])[0]
    kind = getattr(transformers, wanted, None) if wanted else transformers.AutoModel
    if kind is None:
        raise ValueError(f"model: {path} holds {wanted!r}, which this version of transformers does not have")
    state, only_here = _state(weights), {"local_files_only": True, "trust_remote_code": False}
    try:
        with _quiet(transformers):
            read = transformers.AutoConfig.from_pretrained(path, **only_here)
            if weights is None:
                told = {"output_loading_info": True, "ignore_mismatched_sizes": True}  # both are told of below
                made, info = kind.from_pretrained(path, **only_here, **told)
            else:
                made, info = kind(read) if wanted else transformers.AutoModel.from_config(read), {}
    except Exception as error:
        raise _not_made(str(path), weights, error) from error
    missing, sizes = sorted(info.get("missing_keys", ())), sorted(info.get("mismatched_keys", ()))
    wrong = [("missing", missing), ("of another shape", [name for name, *_ in sizes])]
    said = [f"{len(names)} {what} ({some(names)})" for what, names in wrong if names]
    if said:
        raise ValueError(f"weights: {path} does not fit {wanted}: {', '.join(said)}")

    wanted_sight = _processor_sight(path, made)
    if size is not None:
        wanted_sight = Sight(size, wanted_sight.channels, wanted_sight.mean, wanted_sight.deviation, wanted_sight.known)
    return _subject(made, path.resolve().name, weights, state, None, wanted_sight, "the folder's")


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without transformers' reports and bars: what is wrong is said in one line."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _exported(path: Path, weights: str | Path | None) -> Subject:
    try:
        program = torch.export.load(path)
    except Exception as error:
        raise ValueError(f"model: {path} cannot be read as an exported program ({reason(error)})") from error
    return of_program(program, path.stem, _state(weights), "the program's" if weights is None else str(weights))


def of_program(
    program: torch.export.ExportedProgram, name: str, state: dict[str, Tensor] | None = None, source: str = "as given"
) -> Subject:
    """An exported program's module, which takes images of the size that it was exported with."""
    module = program.module()
    if state:
        load_weights(module, state, source)
    names = set(program.graph_signature.user_inputs)
    inputs = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    shape = inputs[0].meta["val"].shape if len(inputs) == 1 else ()
    if len(shape) != 4:
        raise ValueError(f"model: {name} takes {len(inputs)} inputs, expected one of (images, channels, height, width)")
    batch, channels, height, width = (side if isinstance(side, int) else None for side in shape)
    wanted = sight(tower(module))
    if channels and height and width:
        wanted = Sight((height, width), channels, (0.5,) * channels, (0.5,) * channels, known=False)
    return Subject(tower(module), name, wanted, {"weights": source}, batch=batch)


def _subject(
    made: nn.Module,
    name: str,
    weights: str | Path | None,
    state: dict[str, Tensor],
    fresh: Callable[[int], nn.Module] | None,
    wanted: Sight | None,
    source: str = "the library's pretrained ones",
) -> Subject:
    if state:
        load_weights(made, state, str(weights))
    if weights is not None:
        source = "random, seed 0" if str(weights) == RANDOM else Path(weights).name
    plain = of_module(made, name, {"weights": source})
    return Subject(plain.tower, name, wanted or plain.sight, plain.details, fresh, plain.classes)


def _state(weights: str | Path | None) -> dict[str, Tensor]:
    return {} if weights is None or str(weights) == RANDOM else read_weights(Path(weights))


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def _not_made(name: str, weights: str | Path | None, error: Exception) -> ValueError:
    if weights is None:
        return ValueError(
            f"model: {name} could not be had with its weights ({reason(error)}); give --weights FILE, or "
            "--weights random"
        )
    return ValueError(f"model: {name} could not be made ({reason(error)})")


def _config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        raise ValueError(f"model: {path} has no config.json, expected a folder of transformers or of a run") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"model: {path / 'config.json'} cannot be read ({reason(error)})") from error
    if not isinstance(found, dict):
        raise ValueError(
            f"model: {path / 'config.json'} holds a {type(found).__name__}, expected the fields of a model"
        )
    return found


def _processor_sight(path: Path, made: nn.Module) -> Sight:
    """From the folder's image processor, whose file is read without importing what it needs."""
    plain = sight(tower(made))
    try:
        given = json.loads((path / "preprocessor_config.json").read_text())
        mean, deviation = tuple(map(float, given["image_mean"])), tuple(map(float, given["image_std"]))
    except (OSError, ValueError, KeyError, TypeError):
        return plain
    if len(mean) != plain.channels or len(deviation) != plain.channels:
        return plain
    return Sight(plain.size, plain.channels, mean, deviation)
