"""The `tessella` command: what it can be asked, and how it answers. Each answer imports only what it needs."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tessella import __version__
from tessella.claims import catalogue

DESCRIPTION = "How vision transformers learn which patches of an image belong together, as code that runs."
EPILOG = """examples:
  tessella list                                what can be verified
  tessella verify thm4.2 --page out            run Theorem 4.2, and make a page of it
  tessella verify --json results.json          run every claim
  tessella train signal-sets --folder runs/a   one run of gradient descent, kept and resumable
  tessella data prepare cifar100 --from PATH   decode a data set once, for training
  tessella serve runs                          watch runs in a browser of this machine
  tessella inspect vit_base_patch16_224 --page out   what it has learnt, with a page
  tessella bench descent                       speed, as ratios within one run"""


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    """The whole grammar of the command line."""
    top = _Parser(
        prog="tessella", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"tessella {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    _add_list(commands)
    _add_verify(commands)
    _add_train(commands)
    _add_data(commands)
    _add_inspect(commands)
    _add_bench(commands)
    _add_serve(commands)
    _add_readme(commands)
    return top


def _add_list(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = commands.add_parser("list", help="name the claims and what they state")
    made.set_defaults(module="listing")


def _add_verify(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = commands.add_parser(
        "verify",
        help="run claims and hold them against their bars",
        description="Runs claims. Exits 0 if all hold, 1 if one does not, 2 on wrong usage.",
    )
    made.add_argument(
        "ids", nargs="*", metavar="ID", help="claims, or patterns such as 'mim.*'; all where none is named"
    )
    made.add_argument("--seeds", type=_count, metavar="N", help="seeds a claim (default: each claim's own number)")
    made.add_argument("--full", action="store_true", help="the larger set-ups")
    made.add_argument("--jobs", type=_count, default=1, metavar="N", help="claims to run at a time, each in a process")
    made.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    made.add_argument("--json", type=Path, metavar="PATH", help="write the verdicts as JSON; - for standard output")
    made.add_argument("--page", type=Path, metavar="DIR", help="write an index and a page for each claim")
    made.add_argument("--folder", type=Path, metavar="DIR", help="keep runs here, so that a killed one resumes")
    made.add_argument(
        "--save", type=Path, metavar="DIR", help="write one JSON file a claim with the command, as in results/"
    )
    made.add_argument(
        "--data", metavar="[NAME=]PATH", help="where images lie, such as cifar100=PATH; for claims that read images"
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="fields",
        help="change a field of the set-ups, such as epochs=60; a wrong one lists them all",
    )
    made.set_defaults(module="verifying")


def _add_train(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = commands.add_parser(
        "train",
        help="one run, kept in a folder, and resumed where it was killed",
        description="Trains a recipe. With a folder, the run is kept there and goes on where it was killed.",
    )
    made.add_argument("recipe", choices=TRAINED, metavar="RECIPE", help=f"what to train: {', '.join(TRAINED)}")
    made.add_argument("--data", type=Path, metavar="PATH", help="where the images lie; digits need none")
    made.add_argument(
        "--attention",
        choices=["positional", "vanilla", "projections", "gram", "matrix"],
        help="vanilla, positional, or one of its parametrisations (default: the recipe's)",
    )
    made.add_argument("--folder", type=Path, metavar="DIR", help="the run folder, new or to be resumed")
    made.add_argument("--seed", type=_whole, default=0, help="which run (default: 0)")
    made.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="fields",
        help="change a field, such as epochs=60, shape.pooling=mean or augmentation.mixup=0.8; a wrong one lists all",
    )
    made.set_defaults(module="training")


def _add_data(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = commands.add_parser("data", help="prepare images for training, check them, look at them")
    actions = made.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=_Parser)
    prepare = actions.add_parser(
        "prepare",
        help="decode a data set once, into files that are mapped into memory",
        description="Decodes every image once, in parallel. The folder is there whole afterwards, or not at all.",
    )
    prepare.add_argument("name", metavar="NAME", help=f"one of {', '.join(DATA_SETS)}")
    prepare.add_argument(
        "--from", type=Path, required=True, metavar="PATH", dest="source", help="what was downloaded: folder or archive"
    )
    prepare.add_argument("--to", type=Path, metavar="DIR", help="the folder to make (default: data/NAME)")
    prepare.add_argument("--size", type=_count, metavar="N", help="squares of N pixels (default: as the images are)")
    prepare.add_argument("--workers", type=_count, metavar="N", help="processes that decode (default: one a core)")
    check = actions.add_parser("check", help="compare a prepared folder with its checksums")
    check.add_argument("path", type=Path, metavar="PATH", help="what `tessella data prepare` made")
    show = actions.add_parser("show", help="draw images of each class, and how many there are")
    show.add_argument("name", metavar="NAME", help=f"digits, or one of {', '.join(DATA_SETS)}")
    show.add_argument(
        "--from", type=Path, metavar="PATH", dest="source", help="a prepared folder, or what was downloaded"
    )
    show.add_argument("--to", type=Path, metavar="FILE", help=".png, .svg or .pdf (default: NAME.png)")
    made.set_defaults(module="data")


def _add_inspect(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = commands.add_parser(
        "inspect",
        help="what spatial structure any ViT has learnt, as numbers and a page",
        description="Reads attention and encodings of models, and measures them beside the same with random weights.",
    )
    made.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a name of timm or torchvision, a folder of transformers or of a run, an exported program (.pt2); "
        "several are compared on the same images",
    )
    made.add_argument(
        "--weights",
        action="append",
        metavar="FILE",
        help="weights of the model, or random; once, or once for each model (default: pretrained, or the folder's)",
    )
    made.add_argument(
        "--images", default="digits", metavar="PATH", help="a folder or a file of images, or digits (default: digits)"
    )
    made.add_argument("--count", type=_count, default=64, metavar="N", help="at most so many images (default: 64)")
    made.add_argument("--size", type=_size, metavar="HxW", help="pixels of an image (default: as the model wants it)")
    made.add_argument("--layers", type=_numbers, metavar="N,N", help="some layers only, such as 0,1,-1")
    made.add_argument("--examples", type=_whole, metavar="N", help="images whose whole attention the page shows")
    made.add_argument("--batch", type=_count, metavar="N", help="images at a time (default: 8, on a GPU 64)")
    made.add_argument(
        "--partition", type=Path, metavar="FILE", help="labels of patches as JSON (default: 2 x 2 blocks)"
    )
    made.add_argument("--steps", action="store_true", help="every step whose weights a run folder keeps")
    made.add_argument("--seed", type=_whole, default=1, help="of the random weights to compare with (default: 1)")
    made.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    made.add_argument("--json", type=Path, metavar="PATH", help="write the numbers as JSON; - for standard output")
    made.add_argument("--page", type=Path, metavar="DIR", help="write a page to look at, inspection.html")
    made.set_defaults(module="inspecting")


def _add_bench(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = commands.add_parser("bench", help="measure speed against a peer or the machine's limit, in one run")
    made.add_argument("name", choices=sorted(BENCHES), help="what to measure")
    made.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    made.add_argument("--json", type=Path, metavar="PATH", help="write the figures as JSON; - for standard output")
    made.add_argument("--picture", type=Path, metavar="FILE", help="draw the times: .svg, .pdf or .png")
    made.set_defaults(module="benching")


def _add_serve(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = commands.add_parser("serve", help="show run folders in a browser of this machine, with live curves")
    made.add_argument("folder", type=Path, metavar="DIR", help="the folder that holds run folders and pages")
    made.add_argument(
        "--port", type=_port, default=8765, metavar="N", help="where to listen; 0 for any (default: 8765)"
    )
    made.set_defaults(module="serving")


def _add_readme(commands: argparse._SubParsersAction[_Parser]) -> None:
    made = commands.add_parser("readme", help="render the README's tables from results/")
    made.add_argument("--check", action="store_true", help="write nothing; exit 1 where the README differs")
    made.add_argument("--root", type=Path, default=Path(), metavar="DIR", help="the folder of README.md and results/")
    made.set_defaults(module="rendering")


DATA_SETS = ("cifar10", "cifar100", "svhn", "tiny-imagenet", "imagenet", "parquet", "folder")
"""What `tessella.images.catalogue` reads, said here so that help needs no torch; a test compares the two."""

BENCHES = {name: name for name in ("attention", "descent", "idealized", "masked", "training")} | {
    "inspect": "inspection"
}
"""Benchmark name to module under `tessella.bench`."""


TRAINED = [
    "signal-sets",
    "digits",
    "cifar10",
    "cifar100",
    "cifar100_fast",
    "cifar100_small",
    "svhn",
    "tiny_imagenet",
    "vit_tiny_imagenet",
]
"""What can be trained: the simplified ViT on Assumption 1, and the recipes of `tessella.training.recipes`."""


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number of at least 1")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number of 0 or more")
    return int(text)


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and (width or height).isdecimal() and int(height) * int(width or height)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected pixels such as 224 or 224x336")
    return int(height), int(width or height)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected whole numbers such as 0,1,-1") from None


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from 0 to 65535")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; what a person can cause ends in one line and a code, not in a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(given)
    options.command_line = shlex.join(["tessella", *given])
    try:
        if options.command == "verify":
            options.ids = catalogue.select(options.ids)
        code: int = importlib.import_module(f"tessella.cli.{options.module}").run(options)
        return code
    except ValueError as error:
        return _say(error, 2)
    except ModuleNotFoundError as error:
        if error.name is not None:  # not one of ours, which say what to install
            raise
        return _say(error, 2)
    except OSError as error:
        return _say(f"{error.filename or 'standard output'}: {error.strerror or error}", 2)
    except (MemoryError, RuntimeError) as error:
        return _say_memory(error)
    except KeyboardInterrupt:
        return _say("stopped", 130)


def _say_memory(error: MemoryError | RuntimeError) -> int:
    """Memory that is not there is worth one line, on a CPU or a GPU; another such error is ours, with a traceback."""
    if isinstance(error, MemoryError) or "memory" in str(error):
        return _say(f"out of memory: {str(error).splitlines()[0] if str(error) else 'expected a smaller set-up'}", 2)
    raise error


def _say(message: object, code: int) -> int:
    print(f"tessella: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
