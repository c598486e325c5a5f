"""Write what the search found into the package: ``python -m tools.best_score_search finalists | selected``.

``tubal reproduce --table search`` logs the first stage in results/table2_search.json; ``finalists`` applies the written
rule to that log and writes src/tubal/experiments/finalists.toml. ``tubal reproduce --table finals`` then runs those
again with other seeds and logs them in results/table2_finals.json; ``selected`` writes the best ones to
src/tubal/experiments/best_score.toml, which the best-score rows of Table 2 read.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tubal.experiments.finals import finalists_toml, selected_toml
from tubal.experiments.search import Entry, ranking, summary_of
from tubal.storage.files import atomic_write

RESULTS, PACKAGE = Path("results"), Path("src/tubal/experiments")
FILES = {
    "finalists": (RESULTS / "table2_search.json", PACKAGE / "finalists.toml"),
    "selected": (RESULTS / "table2_finals.json", PACKAGE / "best_score.toml"),
}


def text_of(stage: str) -> str:
    """Return what the log of a stage selects, as the package holds it."""
    trials: list[Entry] = json.loads(FILES[stage][0].read_text(encoding="utf-8"))["trials"]
    return finalists_toml(summary_of(trials)["finalists"]) if stage == "finalists" else selected_toml(ranking(trials))


def main() -> None:
    """Read the log of a stage, write the file of the package."""
    parser = argparse.ArgumentParser(prog="python -m tools.best_score_search", description=__doc__)
    parser.add_argument("stage", choices=FILES, help="which file to write")
    stage = parser.parse_args().stage
    with atomic_write(FILES[stage][1], "w", encoding="utf-8") as file:
        file.write(text_of(stage))
    print(f"wrote {FILES[stage][1]}")


if __name__ == "__main__":
    main()
