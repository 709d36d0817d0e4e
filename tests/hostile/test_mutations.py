"""Classes 5 to 8 at once: anything in any file is something else, and a command that reads it is asked.

Nobody chose the places. Whatever happens is an answer or an error of ours, nothing outside the folder
changes, and what is printed holds no commands for the terminal.
"""

import contextlib
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from tests.campaign import Batches
from tests.harness.stored_bench import stored_bench
from tests.hostile.test_8_text import clean
from tests.hostile.writing_commands import SCENARIO

NUMBERS = [None, True, -1, 0, 1, 2**63, -(2**63) - 1, 10**400, 1e308, float("nan"), float("inf")]
PATHS = ["../../outside/precious", "/etc/passwd", "a/../../b", ".", "..", "x" * 5000, ""]
TEXTS = ["\x1b]0;owned\x07", "\x9b2J", "[/red]", "[link=x]y", "\udc80", "\ud800", "\u202e", "\x00", "=cmd()"]
WORDS = [
    "</script><script>",
    "%s%n",
    "{0.__class__}",
    "nan",
    "1e999",
    "2026-13-45T99:99:99Z",
    "9999-12-31T23:59Z",
]
SHAPES: list[Any] = [[], {}, [[]], {"": {}}, [None] * 2000, {"a": 1}, ["../x"]]
VALUES: list[Any] = [*NUMBERS, *PATHS, *TEXTS, *WORDS, *SHAPES]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


def mutated(value: Any, rng: random.Random) -> Any:
    """With something else in one place: another value, nothing, one more key, or a part from elsewhere."""
    where = rng.choice(list(places(value)))
    if not where:
        return rng.choice(VALUES)
    parent = value
    for key in where[:-1]:
        parent = parent[key]
    kind = rng.random()
    if kind < 0.1 and isinstance(parent, dict):
        del parent[where[-1]]
    elif kind < 0.2 and isinstance(parent, dict):
        parent[rng.choice(["", "\x1b[2J", "__class__", "x" * 300, "../x", "[/]"])] = rng.choice(VALUES)
    elif kind < 0.3:
        parent[where[-1]] = json.loads(json.dumps(value))
    else:
        parent[where[-1]] = rng.choice(VALUES)
    return value


def spoil(path: Path, rng: random.Random) -> None:
    """Change a file: a value of a record, or bytes of anything."""
    data = path.read_bytes()
    if path.suffix == ".json" and rng.random() < 0.8:
        path.write_text(json.dumps(mutated(json.loads(data), rng)), encoding="utf-8", errors="surrogatepass")
    elif path.suffix == ".jsonl" and data and rng.random() < 0.8:
        lines = data.decode().splitlines()
        i = rng.randrange(len(lines))
        lines[i] = json.dumps(mutated(json.loads(lines[i]), rng))
        path.write_text("\n".join(lines) + "\n", errors="surrogatepass")
    else:
        out = bytearray(data or b"\0")
        for _ in range(rng.randint(1, 4)):
            kind, at = rng.random(), rng.randrange(len(out) or 1)
            if kind < 0.5:
                out[at : at + 1] = bytes([rng.randrange(256)])
            elif kind < 0.7:
                del out[at : at + rng.randint(1, 64)]
            elif kind < 0.9:
                out[at:at] = rng.randbytes(rng.randint(1, 64))
            else:
                out[at : at + 8] = b"\xff" * 8  # a length
        path.write_bytes(bytes(out))


def ask(arguments: list[str]) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = cli.run(arguments)
    return code, out.getvalue()


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("originals")
    bench = stored_bench(base / "bench")
    assert ask(["profile", "build", str(bench)])[0] == 0
    bench.rename(base / "bench_run")
    (base / "small.toml").write_text(SCENARIO)
    emulation = ["emulate", str(base / "small.toml"), "--selector", "fedavg,oort", "--seeds", "0-1"]
    assert ask([*emulation, "--root", str(base / "emulations")])[0] == 0
    next((base / "emulations").iterdir()).rename(base / "emulation_run")
    assert ask(["traces", "synth", "--users", "3", "--days", "2", "--out", str(base / "set")])[0] == 0
    return base


EXPORTS = [f"export {{}} --format {name} --out {{}}-out" for name in ("csv", "parquet", "perfetto", "junit")]
READERS: dict[str, list[str]] = {
    "bench_run": [
        *("runs show {}", "bench status {}", "bench show {}", "report {}", "profile build {}", *EXPORTS),
        *(
            "profile list --root {}/..",
            "runs list --root {}/..",
            "runs salvage {}",
            "export {} --share {}-out",
        ),
    ],
    "emulation_run": [
        "runs show {}",
        "report {}",
        "compare {}",
        "emulate --resume {}",
        EXPORTS[0],
        EXPORTS[1],
    ],
    "set": [
        *("traces show {}", "traces validate {}", "traces stats {}"),
        *("traces flatten {} --out {}-out", "traces export {} --out {}-out"),
    ],
}


@pytest.mark.campaign
@pytest.mark.parametrize("what", READERS)
def test_anything_else_in_any_file(
    what: str,
    originals: Path,
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    precious = tmp_path / "outside" / "precious"
    precious.parent.mkdir()
    precious.write_text("do not touch")
    batches = Batches(f"mutations-{what}", campaign_count(12, 400))
    for i in batches:
        rng = random.Random(f"{what} {i}")
        folder = tmp_path / "in" / str(i) / what
        shutil.copytree(originals / what, folder)
        files = [one for one in sorted(folder.rglob("*")) if one.is_file() and one.name != ".lock"]
        for file in rng.sample(files, rng.randint(1, 2)):
            spoil(file, rng)
        command = rng.choice(READERS[what])
        code, said = ask([word.format(*[folder] * 2) for word in command.split()])
        assert "unexpected" not in said, f"{what} {i}: {command}: {said}"
        assert code in (0, 1, 2, 3, 4, 5, 6), f"{what} {i}: {command}: {code}"
        assert clean(said), f"{what} {i}: {command}: {said!r}"
        assert precious.read_text() == "do not touch"
        assert sorted(one.name for one in tmp_path.iterdir()) == ["in", "outside"]
        shutil.rmtree(tmp_path / "in")
        batches.counts["refused"] += code != 0
        batches.counts["answered"] += code == 0
    for fact, value in batches.facts().items():
        record_property(fact, value)
