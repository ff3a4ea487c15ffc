"""How numbers are written for people, in the terminal and on pages."""

from __future__ import annotations


def number(value: float) -> str:
    """A number as people read it: four significant digits, a true minus sign."""
    text = f"{value:.4g}"
    if "e" in text:
        digits, exponent = text.split("e")
        text = f"{digits}e{int(exponent)}"
    return text.replace("-", "\u2212")
