"""What can end a training run, each in one line; the last checkpoint is usable after all of them."""

from __future__ import annotations


class DivergenceError(RuntimeError):
    """Training left the finite numbers; the message names the rate to lower."""


class LoaderError(RuntimeError):
    """Whatever brings the images has died; the message says where training stands."""


class PeerError(RuntimeError):
    """Another process of the same run has ended."""
