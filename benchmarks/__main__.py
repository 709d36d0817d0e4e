"""``python -m benchmarks [NAME ...]``: run the benchmarks, print one table, store the figures as JSON.

Speed is compared inside one run on one machine; absolute figures from different days mean little.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from benchmarks.result import Figure

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"__init__", "__main__", "result"}


def names() -> list[str]:
    """Every benchmark module."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS)


def show(figure: Figure) -> None:
    """One line of the table."""
    spread = f"{figure.low:.3g} to {figure.high:.3g}, n={figure.repeats}"
    sign = ">=" if figure.better == "higher" else "<="
    bar = f"{sign} {figure.bar:g} {figure.verdict}" if figure.bar is not None else ""
    print(
        f"  {figure.name:<58} {figure.value:>10.4g} {figure.unit:<12} ({spread})  {bar}  {figure.note}",
        flush=True,
    )


def main(wanted: list[str]) -> int:
    """Run the wanted benchmarks, or all."""
    unknown = set(wanted) - set(names())
    if unknown:
        print(
            f"no benchmark called {', '.join(sorted(unknown))}; known: {', '.join(names())}", file=sys.stderr
        )
        return 2
    figures: list[Figure] = []
    for name in wanted or names():
        print(name, flush=True)
        for figure in import_module(f"benchmarks.{name}").run():
            show(figure)
            figures.append(figure)
    host = {"python": platform.python_version(), "cpus": os.cpu_count(), "machine": platform.machine()}
    body = {
        "date": datetime.now(UTC).isoformat(),
        "host": host,
        "figures": [figure.as_dict() for figure in figures],
    }
    target = Path(os.environ.get("FEDJOULE_BENCH_OUT", "build/benchmarks.json"))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(body, indent=2) + "\n")
    print(f"figures in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
