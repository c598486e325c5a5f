"""Numba kernels for NumPy arrays, one file for each computation.

The modules in ``tubal.problems``, ``tubal.solvers``, ``tubal.graph`` and ``tubal.clustering`` call them from several
threads. Kernels import nothing but the compiler options in ``jit``.
"""
