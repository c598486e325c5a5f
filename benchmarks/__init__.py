"""Speed as ratios in one run against named baselines. Run with ``python -m benchmarks [--quick]``."""
