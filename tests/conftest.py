import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings


def _declare_operators_of_torchvision() -> None:
    """Lets torchvision's models import beside a torch that its compiled part was not built for.

    Importing it registers functions for operators that the compiled part would have brought. Where that does not
    load, their names are declared here, so that the models work and the operators do not.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    compiled = list(Path(found.origin).parent.glob("_C*.so"))
    try:
        torch.ops.load_library(str(compiled[0]))
    except (IndexError, OSError, RuntimeError):
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}() -> ()")
        _DECLARED.append(declared)


_DECLARED: list[torch.library.Library] = []
_declare_operators_of_torchvision()

# A shell that starts the tests in the background lets them ignore ctrl-C, and so would every command they stop by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing on a machine that does other things too. In CI the examples are fixed.
settings.register_profile("tessella", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("tessella")

# Imported where Triton interprets kernels alone: in the process that test_kernels_interpreted starts.
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted_kernels.py"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs a GPU or a browser where there is none, and says so."""
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
        if item.get_closest_marker("browser") and CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason="no Chromium on the path"))


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Headless Chromium, offline but for files."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*flags, "--disable-sync", "--no-first-run"]
        )
        yield started
        started.close()
