"""Torch and Triton code for tensors on a GPU."""
