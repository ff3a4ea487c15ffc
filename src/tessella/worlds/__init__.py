"""Distributions with hidden structure to learn from."""
