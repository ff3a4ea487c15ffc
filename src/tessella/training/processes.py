"""The processes that train one model together, as torchrun starts them: gloo between CPUs, NCCL between GPUs.

Gradients are one vector, so that one sum over the processes is all they exchange in a step. With `draws="batch"` the
processes share one global batch, and their number changes nothing but the order of sums.
"""

from __future__ import annotations

import atexit
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from tessella.training.failures import PeerError

START_SECONDS = 300.0
"""How long a process waits for the first one."""


@dataclass(frozen=True)
class Processes:
    """Which process this is, of how many."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this one writes and speaks for all."""
        return self.rank == 0

    def share(self, whole: int) -> slice:
        """This one's part of so many things, which their number divides."""
        part = whole // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def average(self, vector: Tensor) -> None:
        """Replaces it by its mean over the processes."""
        if self.size > 1:
            self.add(vector)
            vector.div_(self.size)

    def add(self, vector: Tensor) -> None:
        """Replaces it by its sum over the processes."""
        if self.size > 1:
            with _peers():
                distributed.all_reduce(vector)

    def follow(self, tensors: Sequence[Tensor]) -> None:
        """Gives all processes the first one's tensors."""
        if self.size > 1:
            with _peers():
                for each in tensors:
                    distributed.broadcast(each, 0)

    def told(self, thing: Any) -> Any:
        """What the first process says; the others' own is not heard."""
        if self.size == 1:
            return thing
        said = [thing]
        with _peers():
            distributed.broadcast_object_list(said, 0)
        return said[0]


def joined(device: str) -> tuple[Processes, torch.device]:
    """The processes that torchrun started together with this one, and this one's device; alone without torchrun.

    The group lasts as long as the process.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Processes(), torch.device(device)
    own = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if device == "cuda" else device)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    if not distributed.is_initialized():
        with _peers():
            store, rank, _ = next(rendezvous("env://"))
            store = of_this_start(store, rank, size)
        distributed.init_process_group(
            "nccl" if own.type == "cuda" else "gloo", store=store, rank=rank, world_size=size
        )
        atexit.register(distributed.destroy_process_group)
    return Processes(distributed.get_rank(), size), own


def of_this_start(store: Store, rank: int, size: int) -> Store:
    """The part of the store that only the processes of this start know.

    torchrun keeps one store over its restarts, and a process that comes up early would find the addresses of those that
    have died. So the first process names the start, and each other one trusts a name once its own was answered there.
    """
    own = uuid.uuid4().hex
    if rank == 0:
        store.set("start", own)
        for peer in range(1, size):
            store.set(f"{own}/{peer}/heard", store.get(f"{own}/{peer}").decode())
        return PrefixStore(own, store)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        name = store.get("start").decode()
        store.set(f"{name}/{rank}", own)
        heard = f"{name}/{rank}/heard"
        if store.check([heard]) and store.get(heard).decode() == own:
            return PrefixStore(name, store)
        time.sleep(0.02)
    raise PeerError(f"the first process of this run was not heard from in {START_SECONDS:.0f} s")


@contextmanager
def _peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise
        raise PeerError(f"another process of this run has ended ({str(error).splitlines()[0]})") from error
