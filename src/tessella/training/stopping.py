"""Being asked to stop, by ctrl-C or by a machine that is to be given back, and doing so between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Request:
    """Whether somebody has asked."""

    def __init__(self) -> None:
        self.made = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.made = True


@contextmanager
def asked(heard: bool) -> Iterator[Request]:
    """Within it signals only leave a note, so that no step is broken off half-way; where `heard`, and they can be."""
    request = Request()
    if not heard or threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = [(number, signal.signal(number, request)) for number in SIGNALS]
    try:
        yield request
    finally:
        for number, handler in before:
            signal.signal(number, handler)
