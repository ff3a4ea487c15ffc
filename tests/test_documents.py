"""What the documents show as Python runs as it stands, top to bottom, as a reader would type it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(name: str) -> list[str]:
    return BLOCK.findall((ROOT / name).read_text())


DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
    if "```python" in path.read_text()
]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_python_of_a_document_runs(name: str, tmp_path: Path) -> None:
    script = tmp_path / "shown.py"
    # conftest declares what transformers' models miss of a torchvision that was built for another torch.
    script.write_text("\n".join(["import conftest", *blocks(name)]))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_there_is_python_to_run() -> None:
    assert {"README.md", "docs/positional-attention.md"} <= set(DOCUMENTS)
    assert len(blocks("README.md")) >= 1
