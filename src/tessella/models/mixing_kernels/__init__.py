"""Triton kernels for the mixing of positional attention on CUDA devices, and the choice among them."""
