"""The Triton kernels as compiled for a Hopper GPU, which needs none: nothing that is slow for certain."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="triton is not installed")

SHARED_KB = 227
"""What a program may have of a multiprocessor's shared memory on an H100 or H200."""


def compiled(*arguments, folder):
    """In a process of its own: Triton keeps what was compiled, and with it the driver that launches nothing."""
    command = [sys.executable, "-m", "tessella.bench.compiled_kernels", *arguments]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder), "TRITON_INTERPRET": "0"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_kernels_spill_nothing_fit_shared_memory_and_load_16_bytes_at_a_time(tmp_path):
    """For one size of each regime; 72 is no power of two and no multiple of 16."""
    sizes = ("64,12,65,32", "64,12,197,72", "8,12,1024,72")
    done = compiled("--json", *sizes, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["kernels"]
    names = {kernel["name"] for kernels in found.values() for kernel in kernels}
    products = {"mix_resident", "gradients_resident", "mix_rows", "mix_tiled", "correlate_tiled"}
    assert len(found) == len(sizes)
    assert names == products | {"add_parts", "softmax_forward", "softmax_backward"}
    for kernel in (kernel for kernels in found.values() for kernel in kernels):
        assert kernel["stack"] == 0, kernel
        assert kernel["shared_kb"] <= SHARED_KB, kernel
        if kernel["name"] in products:
            instructions = "\n".join(kernel["instructions"])
            assert "HGMMA" in instructions, kernel
            assert "LDGSTS.E.BYPASS.128" in instructions, kernel


def test_a_size_that_is_none_is_refused_in_one_line(tmp_path):
    done = compiled("64,12,x,64", folder=tmp_path)
    assert done.returncode == 2
    assert "got '64,12,x,64', expected batch,heads,tokens,head size" in done.stderr
