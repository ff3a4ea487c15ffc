"""How numbers are written for people, in the terminal and on pages."""

from __future__ import annotations


def number(value: float, digits: int = 4) -> str:
    """A number as people read it: four significant digits unless it says otherwise, a true minus sign."""
    text = f"{value:.{digits}g}"
    if "e+" in text and abs(value) < 1e6:
        text = f"{float(text):.0f}"
    if "e" in text:
        leading, exponent = text.split("e")
        text = f"{leading}e{int(exponent)}"
    return text.replace("-", "\u2212")
