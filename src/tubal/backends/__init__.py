"""The lowest layer: array namespaces (NumPy or torch), threads, and compiled kernels for both.

Every other package may import from here; nothing here imports from the rest of tubal.
"""
