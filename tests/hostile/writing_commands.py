"""The commands that write, each with what counts as its finished result."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.runs.result import is_finished
from emulator.selectors.neural.policy import read_policy
from harness.profiles.build import build_profile
from harness.profiles.library import build_run_profiles
from joulefleet.runstore import RunStore
from joulefleet.runstore.notes import read_notes
from power.profile import save_profile
from tests.harness.federate.stored_federation import StoredFederation, captures
from tests.harness.profile_captures import one_round
from tests.harness.stored_bench import stored_bench
from tests.hostile.mortal import Ended
from tests.power.synthetic import block, write_recording

SCENARIO = """
name = "small"
[fleet]
devices = 12
[protocol]
rounds = 3
k = 3
[trainer]
kind = "surrogate"
"""
EMULATE = "emulate small.toml --selector fedavg,oort --seeds 0-1 --root runs"
EXPERIMENT = "experiment run probing --preset smoke --seeds 0 --variant candidates-8 --root runs"
VOLATILE = {
    "created_utc",
    "ended_utc",
    "run_id",
    "command",
    "sources",
    "duration_s",
    "elapsed_s",
    "exported_utc",
    "made_utc",
    "recording_sha256",
}
"""Of records: when, and by which call."""

Results = dict[str, str]


def hashed(path: Path) -> str:
    """Of what a file says, but for when it was made."""
    if path.name in ("overhead.parquet", "report.html"):  # how long things took
        return "there"
    content = path.read_bytes()
    if path.suffix == ".json":
        content = json.dumps(_lasting(json.loads(content)), sort_keys=True).encode()
    if path.suffix == ".safetensors":  # its manifest says how many processor seconds it took
        policy = read_policy(content, path.name)
        manifest = json.dumps(_lasting(policy.manifest.model_dump(mode="json")), sort_keys=True)
        arrays = sorted((name, values.tobytes()) for name, values in policy.network.state_dict().items())
        content = repr((manifest, arrays)).encode()
    return hashlib.sha256(content).hexdigest()


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _lasting(v) for k, v in value.items() if k not in VOLATILE and not k.endswith("_s")}
    return [_lasting(one) for one in value] if isinstance(value, list) else value


def folder(name: str) -> Callable[[Path], Results]:
    """A result that is a folder: if it is there it is whole."""

    def results(place: Path) -> Results:
        files = sorted(one for one in (place / name).rglob("*") if one.is_file())
        whole = {str(one.relative_to(place)): hashed(one) for one in files}
        return {name: json.dumps(whole)} if (place / name).exists() else {}

    return results


def file(name: str) -> Callable[[Path], Results]:
    return lambda place: {name: hashed(place / name)} if (place / name).exists() else {}


def names(made: str) -> Callable[[Path], Results]:
    """Files whose content or name holds a time: which are there, and whether they hold anything."""

    def results(place: Path) -> Results:
        files = sorted(one for one in (place / made).rglob("*") if one.is_file())
        return {f"{i} {one.suffix}": "there" for i, one in enumerate(files) if one.stat().st_size}

    return results


def files(place: Path) -> Results:
    """Of a folder that fills file by file, each whole."""
    return {one.name: hashed(one) for one in (place / "made").glob("[!.]*")}


def stored_profiles(place: Path) -> Results:
    """In runs of their own; one that failed has none."""
    runs = RunStore(place / "made").list() if (place / "made").is_dir() else []
    whole = [run.path for run in runs if run.state == "complete"]
    stored = sorted(one.name for one in whole[0].glob("profiles/[!.]*")) if whole else []
    return {"profiles": str(stored)} if stored else {}


def notes(place: Path) -> Results:
    """One of them: a note that is written again is a second one."""
    (run,) = (place / "runs").iterdir()
    return {one.text: "there" for one in read_notes(run)}


def salvaged(place: Path) -> Results:
    (run,) = RunStore(place / "cut").list()
    return folder("cut")(place) if run.state == "salvaged" else {}


def profiles(place: Path) -> Results:
    (run,) = (place / "runs").iterdir()
    return {one.name: hashed(one) for one in (run / "profiles").glob("[!.]*")}


def page(place: Path) -> Results:
    (run,) = (place / "runs").iterdir()
    return {one: hashed(run / one) for one in ("report.html", "junit.xml") if (run / one).exists()}


def emulations(place: Path) -> Results:
    """Each emulation that has a record; and of a run that says it is complete, its tables and page."""
    found: Results = {}
    for run in RunStore(place / "runs").list():
        for record in sorted(one for one in run.path.rglob("emulation.json") if is_finished(one.parent)):
            tables = sorted(record.parent.glob("*.parquet"))
            assert len(tables) == 4, f"{record} without its tables"
            name = str(record.parent.relative_to(run.path))
            found[name] = json.dumps([hashed(one) for one in tables])
        if run.state == "complete":
            found["complete"] = "yes"
            assert list(run.path.rglob("*.arrows")) == []
    return found


@dataclass(frozen=True)
class Writing:
    """A command, what it needs, and its results."""

    arguments: str
    results: Callable[[Path], Results]
    needs: tuple[str, ...] = ()
    resume: str = ""

    def prepare(self, place: Path, kept: Path, command: Command) -> None:
        place.mkdir()
        for name in self.needs:
            keep(name, kept, command)
            source = kept / name
            if source.is_dir():
                shutil.copytree(source, place / name, symlinks=True)
            else:
                shutil.copy2(source, place / name)  # an import takes its time from the file

    def again(self, place: Path) -> list[str]:
        """How its user goes on after it was killed."""
        store = RunStore(place / "runs")
        runs = store.list() if self.resume and (place / "runs").is_dir() else []
        if not runs or runs[-1].state == "complete":
            return self.arguments.split()
        return self.resume.format(run=runs[-1].path).split()


BENCH, RECORDING = "RUN", "RECORDING"
METER = (
    "--kind replay --port meter --voltage 4 --voltage-max 4.2 --current-limit 3 --option speed=0 --seconds 1"
)
CALIBRATE = f"meter calibrate {METER} --point ohms=10,tolerance=1% --out made"
SELFTEST = f"meter selftest {METER} --load-ohms 10 --tolerance 1 --out made"
FIDELITY = f"probing fidelity {BENCH} --profiles a.json --profiles b.json --csv made.csv"
SCALE = "profile scale p.json --device tablet --score 2 --own-score 1 --root made"
CHECK = f"bench check {BENCH} --root built --against p.json --max-increase 50% --junit made.xml"
INIT = "bench init --out made.toml --device pi --host pi.local --meter none"
TRAIN = "policy train fedrank --out made.safetensors --data digits --task digits-softmax"
TRAIN += " --samples 5 --runs 1 --rounds 2"
HISTORY = "profile history board --root built --out made.html"
COMMANDS = {
    "traces synth": Writing("traces synth --users 5 --days 2 --out made", folder("made")),
    "traces import": Writing("traces import csv csv --out made", folder("made"), ("csv",)),
    "traces export": Writing("traces export set --out made", folder("made"), ("set",)),
    "traces flatten": Writing("traces flatten set --out made", folder("made"), ("set",)),
    "traces fit": Writing("traces fit set --out made.json", file("made.json"), ("set",)),
    "profile build": Writing(f"profile build {BENCH}", profiles, ("runs",)),
    "export csv": Writing(f"export {BENCH} --format csv --out made", folder("made"), ("runs",)),
    "export parquet": Writing(f"export {BENCH} --format parquet --out made", folder("made"), ("runs",)),
    "export perfetto": Writing(f"export {BENCH} --format perfetto --out made", file("made"), ("runs",)),
    "export junit": Writing(f"export {BENCH} --format junit --out made.xml", file("made.xml"), ("runs",)),
    "export tensorboard": Writing(f"export {BENCH} --tensorboard made", names("made"), ("runs",)),
    "export mlflow": Writing(f"export {BENCH} --mlflow made", names("made"), ("runs",)),
    "export share": Writing(f"export {BENCH} --share made", folder("made"), ("runs",)),
    "figures": Writing(f"figures {BENCH} --out made", files, ("emulated",)),
    "profile export": Writing("profile export --reference mnist-lenet5 --out made", folder("made")),
    "profile import": Writing("profile import p.json --root made", stored_profiles, ("p.json",)),
    "profile scale": Writing(SCALE, stored_profiles, ("p.json",)),
    "profile history": Writing(HISTORY, file("made.html"), ("built",)),
    "bench check": Writing(CHECK, file("made.xml"), ("built", "p.json")),
    "bench init": Writing(INIT, file("made.toml")),
    "meter show": Writing(f"meter show {RECORDING} --csv made.csv", file("made.csv"), ("runs",)),
    "meter import": Writing("meter import auto m.csv --out made", names("made"), ("m.csv",)),
    "meter calibrate": Writing(CALIBRATE, file("made/calibration.toml"), ("meter",)),
    "meter selftest": Writing(SELFTEST, file("made/selftest.json"), ("meter",)),
    "meter salvage": Writing("meter salvage torn", file("torn/recording.json"), ("torn",)),
    "probing fidelity": Writing(FIDELITY, file("made.csv"), ("federated", "a.json", "b.json")),
    "runs note": Writing(f"runs note {BENCH} seen", notes, ("runs",)),
    "runs salvage": Writing("runs salvage --all --root cut", salvaged, ("cut",)),
    "experiment publish": Writing(f"experiment publish {BENCH} made", folder("made"), ("played",)),
    "traces merge": Writing("traces merge set synthetic --out made", folder("made"), ("set",)),
    "traces repair": Writing("traces validate set --repair made", folder("made"), ("set",)),
    "traces stats": Writing("traces stats set --html made.html", file("made.html"), ("set",)),
    "policy train": Writing(TRAIN, file("made.safetensors")),
    "report": Writing(f"report {BENCH}", page, ("runs",)),
    "compare": Writing("compare emulated", folder("emulated"), ("emulated",)),
    "emulate": Writing(EMULATE, emulations, ("small.toml",), "emulate --resume {run}"),
    "experiment": Writing(EXPERIMENT, emulations, (), EXPERIMENT + " --resume"),
}


Command = Callable[..., Ended]
"""Runs one, and may kill it: `Mortal.run`."""


def keep(name: str, place: Path, command: Command) -> None:
    """Make what commands need, when the first of them does."""
    if (place / name).exists():
        return
    for other in MADE_OF.get(name, ()):
        keep(other, place, command)
    if name in MADE_BY:
        done = command(MADE_BY[name].split(), place)
        assert done.code == 0, done.err
    elif name in CUT:
        whole = command(f"{CUT[name]} whole-{name}".split(), place)
        command(f"{CUT[name]} {name}".split(), place, before=whole.operations * 3 // 4)
    else:
        MAKERS[name](place)


def _stored_profile(place: Path) -> None:
    shutil.copy(next((place / "built").glob("*/profiles/board*.json")), place / "p.json")


def _built(place: Path) -> None:
    assert not build_run_profiles(stored_bench(place / "built")).problems


def _monsoon_csv(place: Path) -> None:
    rows = "".join(f"{0.4 + i / 5000!r},250.0,4.0,\n" for i in range(5_000))
    (place / "m.csv").write_text("Time(ms),Main(mA),Main Voltage(V),\n" + rows)


def _federated(place: Path) -> None:
    federation = StoredFederation(place / "federated")
    federation.add(1, [federation.part(1, name, one_round([1.0] * 3)) for name in ("a", "b")])


def _device_profile(name: str) -> Callable[[Path], object]:
    return lambda place: save_profile(
        build_profile(captures(place / "earlier", name, 1.0, {})), place / f"{name}.json"
    )


MADE_BY = {
    "emulated": EMULATE.replace("--root runs", "--root emulated"),
    "played": EXPERIMENT.replace("--root runs", "--root played"),
    "set": "traces synth --users 5 --days 2 --out set",
    "csv": "traces export set --out csv",
}
CUT = {"cut": EMULATE.replace("--root runs", "--root"), "torn": f"meter record {METER} --out"}
"""Commands that are killed on the way to what `runs salvage` and `meter salvage` mend."""
MADE_OF = {
    "emulated": ["small.toml"], "cut": ["small.toml"], "torn": ["meter"], "csv": ["set"], "p.json": ["built"],
}  # fmt: skip
MAKERS: dict[str, Callable[[Path], object]] = {
    "small.toml": lambda place: (place / "small.toml").write_text(SCENARIO),
    "runs": lambda place: stored_bench(place / "runs"),
    "built": _built,
    "p.json": _stored_profile,
    "m.csv": _monsoon_csv,
    "meter": lambda place: write_recording(place / "meter", [block([0.4] * 10_001)]),
    "federated": _federated,
    "a.json": _device_profile("a"),
    "b.json": _device_profile("b"),
}
