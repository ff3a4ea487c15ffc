"""What a benchmark is: cases timed side by side in one run, as ratios against a peer and against the floor."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tessella.runs.environment import environment


@dataclass(frozen=True)
class Case:
    """One thing measured: our time, and where there are such, the fastest peer's and the floor."""

    case: str
    ours_ms: float | None
    """None where it could not be run; `more` then says why."""
    peer: str | None = None
    peer_ms: float | None = None
    floor_ms: float | None = None
    """What bytes over bandwidth and operations over rate allow, measured in the same run."""
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"case": self.case, "ours_ms": self.ours_ms}
        if self.peer is not None and self.peer_ms is not None and self.ours_ms:
            record |= {"peer": self.peer, "peer_ms": self.peer_ms, "ratio": self.peer_ms / self.ours_ms}
        if self.floor_ms is not None and self.ours_ms:
            record |= {"floor_ms": self.floor_ms, "share_of_floor": self.floor_ms / self.ours_ms}
        return record | dict(self.more)


def record(name: str, cases: Sequence[Case], command: str) -> dict[str, Any]:
    """The shared form of a benchmark's result."""
    place = environment()
    return {
        "bench": name,
        "cases": [case.as_json() for case in cases],
        "command": command,
        "threads": torch.get_num_threads(),
        "commit": place.commit,
        "environment": dataclasses.asdict(place),
    }


def median_ms(call: Callable[[], object], device: str = "cpu", repeats: int = 20, warm_up: int = 3) -> float:
    """The median time of a call: by CUDA events on a GPU, by the wall clock elsewhere."""
    for _ in range(warm_up):
        call()
    if torch.device(device).type == "cuda":
        return _median_by_events(call, repeats)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times)


def side_by_side(
    calls: Mapping[str, Callable[[], object]], device: str, rounds: int | None = None, warm_up: int = 2
) -> dict[str, float]:
    """The median time of each call, in rounds of one call each: what else the machine does meets them all alike."""
    rounds = (30 if torch.device(device).type == "cuda" else 9) if rounds is None else rounds
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(warm_up + rounds):
        for name, call in calls.items():
            taken = median_ms(call, device, repeats=1, warm_up=0)
            if number >= warm_up:
                times[name].append(taken)
    return {name: statistics.median(taken) for name, taken in times.items()}


def _median_by_events(call: Callable[[], object], repeats: int) -> float:
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)
