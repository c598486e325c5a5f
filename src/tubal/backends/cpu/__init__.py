"""Numba kernels for NumPy arrays on the CPU."""
