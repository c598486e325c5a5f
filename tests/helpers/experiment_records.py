"""Trials and records with chosen scores, for tests of the experiments."""

from __future__ import annotations

from tubal.experiments.tables import Record, Trial, trial_key


def kmeans_trial(run: int = 0, row: str = "label-free") -> Trial:
    """A trial on the digits that takes a moment."""
    return Trial(
        table="2", dataset="digits", method="kmeans", row=row, run=run, settings={"n_starts": 1, "scale": "unit"}
    )


def make_record(trial: Trial, *, accuracy: float = 50.0, nmi: float = 50.0, **changes: object) -> Record:
    """The record that ``run_trial`` would return, with chosen scores and changes."""
    record: Record = {
        **trial,
        "key": trial_key(trial),
        "seed": trial["run"],
        "accuracy": accuracy,
        "nmi": nmi,
        "seconds": 1.0,
        "peak_memory_mb": 10.0,
        "process_memory_mb": 100.0,
        "memory_measure": "peak resident set above the start",
        "details": {},
        "data_sha256": "0" * 64,
        "versions": {"tubal": "0"},
    }
    return {**record, **changes}
