"""The plugin that keeps the outcome of tests on a GPU, on tests that pass, fail, break and are skipped."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

def test_passes():
    pass

def test_fails():
    assert False

@pytest.fixture
def broken():
    raise OSError

def test_breaks(broken):
    pass

@pytest.mark.skip
def test_is_skipped():
    pass
"""


def test_outcome_counts_each_test_once_and_names_what_failed(tmp_path):
    (tmp_path / "test_four.py").write_text(TESTS)
    kept = tmp_path / "outcome.json"
    command = [sys.executable, "-m", "pytest", "-p", "device_outcome", "--outcome", str(kept), "test_four.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    record = json.loads(kept.read_text())
    assert (record["passed"], record["failed"], record["skipped"]) == (1, 2, 1)
    assert record["failures"] == ["test_four.py::test_breaks", "test_four.py::test_fails"]
    assert record["environment"]["torch"]
