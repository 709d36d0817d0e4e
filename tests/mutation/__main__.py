"""``python -m tests.mutation --seed 1 --count 300``: mutants of a scratch copy. Can be interrupted."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.mutation.worker import FOLDER, run

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> None:
    """Copies the tree and runs there; with ``--publish`` writes the record."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample")
    parser.add_argument("--only", default="", metavar="PREFIXES", help="of modules whose paths begin so")
    parser.add_argument("--publish", action="store_true", help="write docs/results/mutation.*, run nothing")
    parser.add_argument(
        "--seen", type=Path, nargs="*", default=[], metavar="RESULTS",
        help="with --publish: results.jsonl of development samples, whose mutants are no surprise",
    )  # fmt: skip
    parser.add_argument("--note", default="", help="with --publish: a sentence for the page")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        run(asked.seed, asked.count, asked.only)
        return
    if asked.publish:
        from tests.mutation.record import publish

        seen = [path.resolve() for path in asked.seen]
        os.chdir(REPOSITORY)
        publish(asked.seed, asked.count, seen, asked.note)
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"another run is at work in {FOLDER} (JOULEFLEET_MUTATION names another)"
            ) from None
        raise SystemExit(_run_in(copied()))


def _run_in(tree: Path) -> int:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.mutation", "--here", *sys.argv[1:]]
    return subprocess.run(command, cwd=tree, env=environment).returncode


def copied() -> Path:
    """The tracked and new files of the tree as they are now. Never the tree itself."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        listed, cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    tree = FOLDER / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in names:
        source = REPOSITORY / name
        if source.is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tree / name)
    # With the hash of the source inside, so that no mutant of the same size and second is taken for it.
    compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "."]
    subprocess.run(compiled, cwd=tree, check=True, capture_output=True)
    return tree


if __name__ == "__main__":
    main()
