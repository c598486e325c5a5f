"""Benchmarks: run times as ratios to named peers, measured in the same run. ``python -m benchmarks [--quick]``.

The modules measure; ``pages`` turns the stored JSON into ``results/bench.md`` and ``results/gpu.md``. This folder is
not part of the package; only ``tools`` and tests import it.
"""
