"""The rooms of the package import each other in one direction only: the order that CONTRIBUTING.md lists them in."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/tessella"


def rooms() -> list[str]:
    return re.findall(r"^\| `(\w+)/` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)


def imported(source: str) -> set[str]:
    """The rooms that a module names in its imports, those inside functions included."""
    nodes = list(ast.walk(ast.parse(source)))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {parts[1] for parts in (module.split(".") for module in modules) if parts[0] == "tessella" and parts[1:]}


def test_every_room_is_listed() -> None:
    assert sorted(rooms()) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_rooms_import_only_rooms_above_them() -> None:
    order = rooms()
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {room}"
        for path in sorted(PACKAGE.glob("*/**/*.py"))
        for room in imported(path.read_text()) & set(order)
        if order.index(room) > order.index(path.relative_to(PACKAGE).parts[0])
    ]
    assert not wrong
