"""Write the settings that the search selected into the package: ``python -m tools.best_score_search``.

``tubal reproduce --table search`` makes the search and logs it in results/table2_search.json. This tool applies the
written rule to that log and writes src/tubal/experiments/best_score.toml, which the best-score rows of Table 2 read.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tubal.experiments.search import select, selected_toml
from tubal.storage.files import atomic_write

LOG = Path("results/table2_search.json")
SELECTED = Path("src/tubal/experiments/best_score.toml")


def main() -> None:
    """Read the log, apply the rule, write the file."""
    parser = argparse.ArgumentParser(prog="python -m tools.best_score_search", description=__doc__)
    parser.add_argument("--log", type=Path, default=LOG, help="JSON that the search wrote")
    parser.add_argument("--out", type=Path, default=SELECTED, help="TOML file to write")
    options = parser.parse_args()
    trials = json.loads(options.log.read_text(encoding="utf-8"))["trials"]
    with atomic_write(options.out, "w", encoding="utf-8") as file:
        file.write(selected_toml(select(trials)))
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
