"""A pytest plugin that keeps what the tests that need a GPU came to: how many passed, which failed, and where.

python -m pytest -m gpu -p device_outcome --outcome results/gpu-tests.json tests
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import time
from pathlib import Path

import pytest
import torch

from tessella.runs.environment import environment
from tessella.runs.folder import write_json


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcome", type=Path, metavar="PATH", help="write the outcome of the tests as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--outcome") is not None:
        config.pluginmanager.register(Outcome(config.getoption("--outcome")))


class Outcome:
    """Each test counts once: as failed where its set-up, its call or its end failed."""

    def __init__(self, path: Path):
        self.path, self.started = path, time.monotonic()
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found[report.nodeid] = report.outcome

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        outcomes = list(self.found.values())
        record = {
            "tests": "gpu",
            **{name: outcomes.count(name) for name in ("passed", "failed", "skipped")},
            "failures": sorted(name for name, outcome in self.found.items() if outcome == "failed"),
            "seconds": round(time.monotonic() - self.started, 1),
            "environment": dataclasses.asdict(environment()),
            "versions": {name: _version(name) for name in ("triton", "timm", "transformers", "torchvision")},
            "compute_capability": torch.cuda.get_device_capability() if torch.cuda.is_available() else None,
        }
        write_json(self.path, record)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
