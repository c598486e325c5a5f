"""The passes of tubal coding on torch tensors: once in plain torch, once as Triton kernels for a GPU.

``tubal.problems.tubal_torch`` chooses between the two; nothing else imports them.
"""
