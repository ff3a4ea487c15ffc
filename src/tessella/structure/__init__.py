"""Partitions of patches into sets, and whether a matrix has found them (Definitions 2.1 and 2.2)."""
