"""The Triton kernels on a CPU: `interpreted_kernels` in a process in which Triton interprets them."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")


@pytest.mark.skipif(
    tuple(map(int, importlib.metadata.version("triton").split(".")[:2])) < (3, 7),
    reason="the interpreter of Triton 3.6 and before stops at numpy 2.4",
)
def test_kernels_compute_what_float64_does():
    here = Path(__file__).parent
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rf", str(here / "interpreted_kernels.py")]
    done = subprocess.run(
        command, cwd=here.parent, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
