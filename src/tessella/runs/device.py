"""The device that a command was asked to run on."""

from __future__ import annotations

import torch


def checked_device(name: str) -> str:
    """The name again, if torch knows it and it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device: got {name!r}, expected cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: got {name!r}, expected cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device: got {name!r}, but torch sees {torch.cuda.device_count()} CUDA devices")
    return name
