"""Progress on standard error: bars with time left, silent where nobody watches."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bars:
    """A bar for each thing under way. Outside a terminal it draws nothing."""

    def __init__(self, shown: bool = True):
        self._shown = shown and sys.stderr.isatty()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}", style="dim"),
            console=Console(stderr=True),
            transient=True,
            disable=not self._shown,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def tell(self, name: str, fraction: float, detail: str) -> None:
        """Moves the bar of `name`, which appears when it is first told of."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=1.0, detail="")
        self._progress.update(self._tasks[name], completed=fraction, detail=detail)

    def done(self, name: str) -> None:
        """Takes the bar of `name` away."""
        if name in self._tasks:
            self._progress.remove_task(self._tasks.pop(name))

    def say(self, text: str, console: Console) -> None:
        """Prints a line above the bars where they are drawn on the same terminal, and on the console elsewhere."""
        if self._shown and console.is_terminal:
            self._progress.console.print(text, highlight=False)
        else:
            console.print(text)
