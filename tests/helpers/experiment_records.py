"""Trials and records with chosen scores, for tests of the experiments."""

from __future__ import annotations

from tubal.experiments.trials import Record, Trial


def kmeans_trial(run: int = 0, row: str = "label-free") -> Trial:
    """A trial on the digits that takes a moment."""
    return Trial("2", "digits", "kmeans", row, run, {"n_starts": 1, "scale": "unit"})


def make_record(trial: Trial, *, accuracy: float = 50.0, nmi: float = 50.0, **changes: object) -> Record:
    """The record that ``run_trial`` would return, with chosen scores and changes."""
    record: Record = {
        "table": trial.table,
        "dataset": trial.dataset,
        "method": trial.method,
        "row": trial.row,
        "run": trial.run,
        "settings": trial.settings,
        "key": trial.key,
        "seed": trial.seed,
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
