"""What Triton makes of the kernels for a GPU, on a machine that has none: registers, shared memory, instructions.

    python -m tessella.bench.compiled_kernels                 # the sizes of `tessella bench attention --device cuda`
    python -m tessella.bench.compiled_kernels 64,12,257,72    # batch, heads, tokens, head size

The launching code runs as on a device, on tensors without memory, through a driver that compiles and launches nothing.
What comes out are the compiler's reports. They show what would be slow for certain, such as numbers that spill from
registers, or memory read two bytes at a time; no time is measured.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from tessella.bench.attention import GPU_SIZES, Size
from tessella.models.mixing_kernels import launch, softmax

HOPPER = GPUTarget("cuda", 90, 32)
_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass(frozen=True)
class Kernel:
    """One kernel as compiled and launched: registers and bytes of stack of a thread, shared memory of a program."""

    name: str
    grid: tuple[int, int, int]
    warps: int
    registers: int
    stack: int
    shared_kb: float
    instructions: dict[str, int]
    """How often an instruction stands in the program, by its name with its width."""

    def count(self, *starts: str) -> dict[str, int]:
        """The instructions whose names begin so."""
        return {name: number for name, number in sorted(self.instructions.items()) if name.startswith(starts)}


class _NoDevice:
    """Stands where Triton expects the driver of a device: keeps what is loaded and launched, and runs nothing."""

    def __init__(self, target: GPUTarget, multiprocessors: int):
        properties = {"multiprocessor_count": multiprocessors, "max_shared_mem": 1 << 30}
        self.target = target
        self.utils = SimpleNamespace(get_device_properties=lambda index: properties, load_binary=self._load)
        self.binaries = list[tuple[str, bytes, int]]()
        self.launched = list[Kernel]()

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """What launches the binary that Triton loads next."""
        number = len(self.binaries)

        def launched(x: int, y: int, z: int, *rest: Any) -> None:
            self.launched.append(_read(*self.binaries[number], metadata.num_warps, (x, y, z)))

        return launched

    def _load(self, name: str, binary: bytes, shared: int, device: int) -> tuple[None, None, int, int, int]:
        """Module, function, registers, spills, and the most threads of a program, as Triton asks for them."""
        self.binaries.append((name, binary, shared))
        return None, None, 0, 0, 1024


def _read(name: str, binary: bytes, shared: int, warps: int, grid: tuple[int, int, int]) -> Kernel:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        usage, listing = (
            subprocess.run([_TOOLS / "cuobjdump", what, file.name], capture_output=True, text=True, check=True).stdout
            for what in ("--dump-resource-usage", "-sass")
        )
    resources = dict(re.findall(r"\b([A-Z]+):(\d+)", usage))
    instructions = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", listing, re.MULTILINE)
    return Kernel(
        name,
        grid,
        warps,
        int(resources["REG"]),
        int(resources["STACK"]),
        shared / 1024,
        dict(collections.Counter(instructions)),
    )


def kernels(size: Size, device: _NoDevice) -> list[Kernel]:
    """What a forward and a backward pass launch, in their order, from values as a slice of a fused projection."""
    scores = torch.empty(size.heads, size.tokens, size.tokens, dtype=size.dtype, device="meta")
    fused = torch.empty(size.batch, size.tokens, 3, size.heads, size.size, dtype=size.dtype, device="meta")
    device.launched.clear()
    triton.runtime.driver.set_active(device)
    softmax.forward(scores)
    mixed = launch.mix(scores, fused[:, :, 2])
    launch.gradients(scores, fused[:, :, 2], mixed)
    softmax.backward(scores, scores)
    return list(device.launched)


def main() -> None:
    """Prints a table, or with `--json` everything."""
    parser = argparse.ArgumentParser(prog="python -m tessella.bench.compiled_kernels")
    parser.add_argument("size", nargs="*", type=_size, help="batch,heads,tokens,head size")
    parser.add_argument("--multiprocessors", type=int, default=132, help="of the device (132, as an H200 has)")
    parser.add_argument("--json", action="store_true", help="print JSON, with every instruction counted")
    options = parser.parse_args()
    device = _NoDevice(HOPPER, options.multiprocessors)
    found = {size: kernels(size, device) for size in options.size or GPU_SIZES}
    if options.json:
        every = {str(size): [dataclasses.asdict(kernel) for kernel in each] for size, each in found.items()}
        print(json.dumps({"triton": triton.__version__, "target": f"sm_{HOPPER.arch}", "kernels": every}, indent=2))
        return
    print("| tokens, head size | kernel | programs | registers | stack | shared, KB | products | loads |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for size, each in found.items():
        for kernel in each:
            print(_row(size, kernel))


def _size(text: str) -> Size:
    try:
        batch, heads, tokens, size = (int(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected batch,heads,tokens,head size") from None
    if min(batch, heads, tokens, size) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected numbers of at least 1")
    return Size(batch, heads, tokens, size, torch.bfloat16)


def _row(size: Size, kernel: Kernel) -> str:
    programs = " x ".join(str(number) for number in kernel.grid if number > 1) or "1"
    return (
        f"| {size.tokens}, {size.size} | `{kernel.name}` | {programs} | {kernel.registers} | {kernel.stack} | "
        f"{kernel.shared_kb:.0f} | {_counted(kernel.count('HGMMA', 'HMMA'))} | "
        f"{_counted(kernel.count('LDG.', 'LDGSTS'))} |"
    )


def _counted(found: dict[str, int]) -> str:
    """Without the parts of names that are alike everywhere."""
    short = {name.replace(".F32.BF16", "").replace(".E", "").replace(".BYPASS", ""): at for name, at in found.items()}
    return ", ".join(f"{number} {name}" for name, number in short.items())


if __name__ == "__main__":
    main()
