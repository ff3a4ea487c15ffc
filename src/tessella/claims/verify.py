"""Running claims: one at a time or several in processes of their own, with progress told to whoever asks."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import queue
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tessella.claims.catalogue import load
from tessella.claims.claim import Context, Findings, Verdict
from tessella.runs.environment import environment

EXTRAS = {"sklearn": "digits"}
"""Which of the package's extras brings a module that a claim needs."""

Tell = Callable[[str, float, str], None]
"""Called with a claim's id, the fraction of it that is done, and a few words."""


@dataclass(frozen=True)
class Request:
    """Which claims to run, and how."""

    ids: tuple[str, ...]
    seeds: int | None = None
    """None for each claim's own number."""
    full: bool = False
    device: str = "cpu"
    folder: Path | None = None
    data: Path | None = None
    configs: Mapping[str, Any] = field(default_factory=dict)
    """Set-ups by id that take the place of a claim's own, where the user changed one."""


def check_needs(ids: Sequence[str]) -> None:
    """Says in one line, before any work, which extra is missing for which claim."""
    for claim_id in ids:
        for module in load(claim_id).needs:
            if importlib.util.find_spec(module) is None:
                extra = EXTRAS[module]
                raise ValueError(
                    f"{claim_id}: {module} is not installed; pip install 'tessella[{extra}]', or name other claims"
                )


def verify(request: Request, claim_id: str, tell: Tell) -> Verdict:
    """Measures one claim and holds it against its bars."""
    claim = load(claim_id)
    config = request.configs.get(claim_id, claim.full if request.full else claim.default)
    if not claim.bars(config):
        raise ValueError(f"{claim_id}: got a set-up with nothing to hold against a bar, expected at least one case")
    seeds = claim.seeds if request.seeds is None else request.seeds
    context = Context(
        seeds, request.device, request.folder, request.data, lambda fraction, text: tell(claim_id, fraction, text)
    )
    started, started_cpu = time.perf_counter(), time.process_time()
    findings = claim.measure(config, context)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    return Verdict(claim, config, seeds, findings, seconds, environment(), cpu_seconds)


def verify_all(request: Request, jobs: int, tell: Tell) -> Iterator[Verdict]:
    """The verdicts as they come in. With several jobs each claim runs in a process with its share of the cores."""
    if jobs == 1 or len(request.ids) == 1:
        for claim_id in request.ids:
            yield verify(request, claim_id, tell)
        return
    threads = max(1, torch.get_num_threads() // jobs)
    method = multiprocessing.get_context("spawn")
    with (
        _threads_of_children(threads),
        method.Manager() as manager,
        ProcessPoolExecutor(jobs, method, initializer=_start_worker, initargs=(threads,)) as pool,
    ):
        messages = manager.Queue()
        futures = {pool.submit(_measure, request, ids, messages): ids for ids in _together(request.ids)}
        try:
            for future in _as_completed(futures, messages, tell):
                for claim_id, found in zip(futures[future], future.result(), strict=True):
                    config, seeds, findings, seconds, cpu_seconds = found
                    yield Verdict(load(claim_id), config, seeds, findings, seconds, environment(), cpu_seconds)
        except BrokenProcessPool as error:
            unfinished = [ids for future, ids in futures.items() if not future.done() or future.exception()]
            running = ", ".join(claim_id for ids in unfinished for claim_id in ids)
            raise ValueError(f"jobs: a process was ended from outside while it ran one of {running}") from error
        except BaseException:
            for process in pool._processes.values():
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _together(ids: Sequence[str]) -> list[tuple[str, ...]]:
    """The claims that share runs in one group, in the order of their first; the others each by itself."""
    groups: dict[str, list[str]] = {}
    for claim_id in ids:
        groups.setdefault(load(claim_id).runs or claim_id, []).append(claim_id)
    return [tuple(group) for group in groups.values()]


def _start_worker(threads: int) -> None:
    """Ctrl-C is for the parent, which ends its workers itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)


@contextlib.contextmanager
def _threads_of_children(threads: int) -> Iterator[None]:
    """Limits what the numerical libraries of processes started within may use: torch is not the only one."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _measure(
    request: Request, ids: Sequence[str], messages: Any
) -> list[tuple[Any, int, Findings, float, float | None]]:
    """What a process sends back: all of each verdict but the claim, whose functions the parent has itself."""
    verdicts = [verify(request, claim_id, lambda *message: messages.put(message)) for claim_id in ids]
    return [(each.config, each.seeds, each.findings, each.seconds, each.cpu_seconds) for each in verdicts]


def _as_completed(futures: Iterable[Future[Any]], messages: Any, tell: Tell) -> Iterator[Future[Any]]:
    """Like concurrent.futures.as_completed, passing messages on while it waits."""
    pending = set(futures)
    while pending:
        with contextlib.suppress(queue.Empty):
            tell(*messages.get(timeout=0.1))
        done = {future for future in pending if future.done()}
        pending -= done
        yield from done
