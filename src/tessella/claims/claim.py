"""A claim: one statement of a paper, how it is measured, and the bar it must clear.

A claim's module says four things: the statement, the set-up (a frozen dataclass; one preset for a laptop, one for
`--full`), a function that measures, and bars that were fixed before it ran. Whether the claim holds is computed
from the measurements and the bars, never typed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from scipy import stats

from tessella.runs.environment import Environment


@dataclass(frozen=True)
class Interval:
    """A mean over runs with its 95 % Student interval; the interval is the point itself where there is one run."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """The interval of one value a run. NaN in any run makes the mean NaN, which no bar accepts."""
        if not values:
            raise ValueError("values: got none, expected at least one measurement")
        mean = math.fsum(values) / len(values)
        if len(values) == 1:
            return cls(mean, mean, mean)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        half = float(stats.t.ppf(0.975, len(values) - 1)) * math.sqrt(variance / len(values))
        return cls(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Bar:
    """What one measurement must satisfy: at most or at least a number, on average or in every run."""

    measurement: str
    relation: Literal["<=", ">=", "<", ">"]
    limit: float
    over: Literal["mean", "every run"] = "mean"
    why_not: str = ""
    """Why it is known not to hold at the default size, where that is so; shown only when the bar is missed."""

    def accepts(self, values: Sequence[float]) -> bool:
        judged = values if self.over == "every run" else [Interval.of(values).mean]
        compare: dict[str, Callable[[float, float], bool]] = {
            "<=": lambda a, b: a <= b,
            ">=": lambda a, b: a >= b,
            "<": lambda a, b: a < b,
            ">": lambda a, b: a > b,
        }
        return bool(judged) and all(compare[self.relation](value, self.limit) for value in judged)

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g} ({self.over})"


@dataclass(frozen=True)
class Context:
    """How a claim is to be run: with how many seeds, where, and whom to tell how far it is."""

    seeds: int = 5
    device: str = "cpu"
    folder: Path | None = None
    """Where runs are kept so that a killed one resumes; None keeps nothing."""
    data: Path | None = None
    """Where the images lie of claims that read some; None for those that come with a package."""
    progress: Callable[[float, str], None] = lambda fraction, text: None
    """Called with the fraction done, from 0 to 1, and a few words on what is running."""

    def part(self, index: int, parts: int, text: str) -> Callable[[float, str], None]:
        """The progress of part `index` of `parts` equal ones, to hand to what runs inside."""

        def tell(fraction: float, detail: str) -> None:
            self.progress((index + fraction) / parts, f"{text} {detail}".strip())

        return tell


@dataclass(frozen=True)
class Findings:
    """What measuring gave: numbers, one a run, and whatever the claim's page needs to draw."""

    measured: Mapping[str, Sequence[float]]
    evidence: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the JSON keeps besides, such as each run's own numbers: words, numbers, lists and mappings."""


@dataclass(frozen=True)
class Claim:
    """One statement of a paper as a thing that can be run. `default` runs on a laptop in seconds."""

    id: str
    statement: str
    source: str
    default: Any
    full: Any
    bars: Callable[[Any], tuple[Bar, ...]]
    """The bars for a set-up: `--full` may have stricter ones."""
    measure: Callable[[Any, Context], Findings]
    seeds: int = 5
    """How many seeds it takes where the user names no number; 1 for a claim without randomness."""
    needs: tuple[str, ...] = ()
    """Modules outside the core dependencies that it imports, such as `sklearn`."""
    runs: str = ""
    """A name for the training runs that it reads, the same in claims that share them: one process makes them once."""


@dataclass(frozen=True)
class Verdict:
    """A claim, what was measured, and whether it holds."""

    claim: Claim
    config: Any
    seeds: int
    findings: Findings
    seconds: float
    environment: Environment
    cpu_seconds: float | None = None
    """Of all threads of the process that measured: on a machine that does other things too it says more than the
    wall's seconds. None where nobody counted."""

    @property
    def bars(self) -> tuple[Bar, ...]:
        return self.claim.bars(self.config)

    @property
    def intervals(self) -> dict[str, Interval]:
        return {name: Interval.of(values) for name, values in self.findings.measured.items()}

    @property
    def missed(self) -> tuple[Bar, ...]:
        return tuple(bar for bar in self.bars if not bar.accepts(self.findings.measured[bar.measurement]))

    @property
    def holds(self) -> bool:
        """Whether there are bars, and every one is met."""
        return bool(self.bars) and not self.missed

    @property
    def reasons(self) -> list[str]:
        """What was missed and why: one line for each reason, and one for each bar that has none."""
        lines: list[str] = []
        by_reason: dict[str, list[str]] = {}
        for bar in self.missed:
            values = self.findings.measured[bar.measurement]
            missing = sum(not bar.accepts([value]) for value in values)
            got = f"{Interval.of(values).mean:.4g}"
            if bar.over == "every run" and len(values) > 1:
                got += f" on average and misses in {missing} of {len(values)} runs"
            text = f"{bar.measurement} is {got}, the bar is {bar}"
            by_reason.setdefault(bar.why_not, []).append(text)
        for reason, texts in by_reason.items():
            lines += [f"{'; '.join(texts)}: {reason}"] if reason else texts
        return lines

    def as_json(self) -> dict[str, Any]:
        """The shared form of a verdict."""
        record: dict[str, Any] = {
            "claim": self.claim.id,
            "statement": self.claim.statement,
            "source": self.claim.source,
            "holds": self.holds,
            "seeds": self.seeds,
            "measured": {
                name: {
                    **{key: _finite(value) for key, value in dataclasses.asdict(interval).items()},
                    "n": len(self.findings.measured[name]),
                }
                for name, interval in self.intervals.items()
            },
            "bar": _bars_by_measurement(self.bars),
            "config": dataclasses.asdict(self.config),
            "seconds": round(self.seconds, 3),
            "environment": dataclasses.asdict(self.environment),
        }
        if self.cpu_seconds is not None:
            record["cpu_seconds"] = round(self.cpu_seconds, 3)
        if not self.holds:
            record["missed"] = list(dict.fromkeys(bar.measurement for bar in self.missed))
            record["reasons"] = self.reasons
        if self.findings.details:
            record["details"] = _finite_within(self.findings.details)
        return record


def _bars_by_measurement(bars: Sequence[Bar]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for bar in bars:
        texts[bar.measurement] = f"{texts[bar.measurement]} and {bar}" if bar.measurement in texts else str(bar)
    return texts


def _finite(value: float) -> float | None:
    """JSON has no NaN or infinity: they are written as null."""
    return value if math.isfinite(value) else None


def _finite_within(value: Any) -> Any:
    """The same at any depth."""
    if isinstance(value, Mapping):
        return {name: _finite_within(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_within(each) for each in value]
    return _finite(value) if isinstance(value, float) else value
