"""Triton kernels for the mixing of positional attention on CUDA devices, and the choice among them.

Kernels are `no_type_check`: what they annotate tells Triton which arguments are constants, and is no type.
"""
