import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tessella
from tessella.runs.environment import COMMIT


@pytest.mark.parametrize("given", ["0123456789ab", ""])
def test_a_copy_of_the_source_knows_its_version_and_takes_its_commit_from_the_variable(
    tmp_path: Path, given: str
) -> None:
    shutil.copytree(Path(tessella.__file__).parent, tmp_path / "tessella", ignore=shutil.ignore_patterns("__pycache__"))
    asked = "from tessella.runs.environment import environment as e; print(e().tessella, e().commit)"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "PYTHONPATH": str(tmp_path), COMMIT: given},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [tessella.__version__, given or "None"]
