"""Variants of a scenario: named, typed, paired, resumable, and refused where they make no sense."""

import json
from pathlib import Path
from typing import Any

import pytest

from emulator import compare_emulations, load_results, load_scenario, resume, run, run_all
from emulator.runs import emulation
from emulator.runs.planning import plan
from emulator.scenario.model import Scenario
from emulator.scenario.settings import selectors_in, settings_in, split_list
from emulator.scenario.sweep import expand, folder_name, method_label
from harness.cli import run as joulefleet
from harness.federate.files import read_federate_files
from joulefleet.config import parse_toml
from joulefleet.errors import ConfigError, JoulefleetError

SCENARIO = """
name = "small"
seeds = [0, 1]

[fleet]
devices = 12
speed_spread = 0.3

[protocol]
rounds = 2
k = 3
candidates = 6

[trainer]
kind = "surrogate"
"""
SMALL = parse_toml(SCENARIO, Scenario, name="test")
TABLES = ("rounds.parquet", "clients.parquet", "devices.parquet")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO)
    return path


def labels(scenario: Scenario = SMALL, selectors: Any = None, **settings: Any) -> list[str]:
    lists = {key.replace("__", "."): values for key, values in settings.items()}
    return [one.label for one in expand(scenario, selectors, lists)]


def test_every_combination_is_a_variant_with_a_name_of_its_own() -> None:
    named = ["oort:mode=official", "oort:mode=paper,penalty=1", "fedavg"]
    found = expand(SMALL, named, {"protocol.k": [2, 3], "reward.alpha": [1, 2.5]})
    assert [one.label for one in found][:5] == [
        "oort (mode=official, k=2, alpha=1)",
        "oort (mode=official, k=2, alpha=2.5)",
        "oort (mode=official, k=3, alpha=1)",
        "oort (mode=official, k=3, alpha=2.5)",
        "oort (mode=paper, penalty=1, k=2, alpha=1)",
    ]
    assert len({one.label for one in found}) == len(found) == 12
    last = found[-1].scenario
    assert (last.selector.name, last.protocol.k, last.reward.alpha) == ("fedavg", 3, 2.5)
    assert all(one.scenario.sweep is None for one in found)


def test_a_label_says_what_differs_and_nothing_else() -> None:
    assert labels(protocol__k=[2], reward__alpha=[1, 2]) == ["fedavg (alpha=1)", "fedavg (alpha=2)"]
    # Words that several keys end with are written in full, and so are those of an option beside it.
    assert labels(task__name=["a", "b"]) == ["fedavg (task.name=a)", "fedavg (task.name=b)"]
    assert method_label("mine", {"alpha": 1}, {"reward.alpha": 2}) == "mine (alpha=1, reward.alpha=2)"
    assert labels(task__options__alpha=[0.1, 1])[0] == "fedavg (task.options.alpha=0.1)"
    assert labels(protocol__deadline_s=["none", 60])[0] == "fedavg (deadline_s=none)"
    long = method_label("mine", {"text": "x" * 200}, {})
    assert len(long) < 60
    assert long != method_label("mine", {"text": "x" * 201}, {})
    assert folder_name("oort (mode=official, k=2)") == "oort_mode-official_k-2"
    assert len(folder_name("a" * 300)) < 100


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("protocol.k=5", 5),
        ("protocol.k=5.0", 5),
        ("reward.alpha=2", 2.0),
        ("protocol.candidates=all", "all"),
        ("protocol.candidates=none", None),
        ("fleet.traces.shift=false", False),
        ("task.data=1234", "1234"),
        ("task.options.alpha=0.1", 0.1),
        ("fleet.mix={a = 1.0}", {"a": 1.0}),
        ("accounting=free", "free"),
    ],
)
def test_values_are_of_the_type_that_the_scenario_has(text: str, value: Any) -> None:
    key = text.partition("=")[0]
    more = {"fleet.traces.at_end": ["wrap"]} if "traces" in key else {}
    (found,) = expand(SMALL, None, {**settings_in([text]), **more})
    at: Any = found.scenario.model_dump(mode="json")
    for part in key.split("."):
        at = at[part]
    assert at == value
    assert type(at) is type(value)


@pytest.mark.parametrize("order", [1, -1])
def test_a_quoted_value_may_stand_beside_another_key_of_its_section(order: int) -> None:
    texts = [
        'fleet.profiles="ai-benchmark"',
        "fleet.devices=300",
        'protocol.every_s="30 min"',
        "protocol.k=3",
    ]
    (found,) = expand(SMALL, None, settings_in(texts[::order]))
    fleet, protocol = found.scenario.fleet, found.scenario.protocol
    assert (fleet.profiles, fleet.devices) == ("ai-benchmark", 300)
    assert (protocol.every_s, protocol.k) == (1800.0, 3)


def test_lists_are_split_outside_of_brackets_and_quotes() -> None:
    assert split_list("a, b=[1,2],'c,d',{e=1,f=2}") == ["a", "b=[1,2]", "'c,d'", "{e=1,f=2}"]
    found = selectors_in(["fedavg,oort:mode=official,penalty=1", "refl"])
    assert [(one.name, one.options) for one in found] == [
        ("fedavg", {}), ("oort", {"mode": "official", "penalty": 1}), ("refl", {}),
    ]  # fmt: skip


def test_files_are_found_from_where_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lab" / "own.toml"
    file.parent.mkdir()
    file.write_text(
        SCENARIO + '[sweep]\nfleet.profiles = [["mine"], "reference"]\n'
        'selectors = ["fedavg", "fedrank:policy=own.safetensors"]\n'
    )
    monkeypatch.chdir(tmp_path)
    found = load_scenario(str(file))
    assert found.sweep is not None
    assert found.sweep["fleet.profiles"] == [[str(tmp_path / "lab" / "mine")], "reference"]
    assert found.sweep["selectors"][1]["options"]["policy"] == str(tmp_path / "lab" / "own.safetensors")
    (here,) = expand(SMALL, None, settings_in(['fleet.profiles=["p"]']))
    assert here.scenario.fleet.profiles == (str(tmp_path / "p"),)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "protocol.kk=1"], "protocol.kk: unknown key try: did you mean 'protocol.k'?"),
        (["--set", "k=1"], "did you mean 'protocol.k'?"),
        (["--set", "protocol=1"], "protocol: is a table"),
        (["--set", "protocol.k=many"], "--set: protocol.k: Input should be a valid integer"),
        (["--set", "energy=gros,net"], "--set: energy: Input should be 'gross', 'net' or 'marginal'"),
        (["--set", "protocol.k"], "no key and value"),
        (["--set", "protocol.k="], "protocol.k: a value is missing"),
        (["--set", "protocol.k=1,,2"], "protocol.k: a value is missing"),
        (["--set", "protocol.k=2,2.0"], "protocol.k: 2 comes twice"),
        (["--set", "protocol.k=1", "--set", "protocol.k=2"], "--set protocol.k: comes twice"),
        (["--set", "protocol.k=99"], "with protocol.k = 99: protocol.k: 99 clients per round are more"),
        (["--set", "fleet.traces.users=3,4"], "fleet.traces.at_end: missing"),
        (["--set", "seeds=0,1"], "seeds is nothing to sweep try: seeds are paired"),
        (
            ["--set", "sweep.protocol.k=1,2"],
            "sweep.protocol.k is nothing to sweep try: there are no sweeps of",
        ),
        (["--set", "seeds.first=1"], "seeds.first is nothing to sweep"),
        (["--set", "code.x=1"], "code.x is nothing to sweep try: give the files with `--code`"),
        (["--set", "fleet.profiles=[a,b]"], """quoted: --set 'fleet.profiles=["a", "b"]'"""),
        (["--set", "fleet.profiles=3"], "'ai-benchmark' or: should be a list, got 3"),
        (
            ["--selector", "oort mode=official"],
            "not a selector try: options follow a colon: oort:mode=official",
        ),
        (["--selector", "oort;mode=official"], "options follow a colon: oort:mode=official"),
        (["--set", "selector.name=oort"], "give several selectors with `--selector`"),
        (["--selector", "oort:mod=paper"], "has no option 'mod' try: did you mean 'mode'?"),
        (["--selector", "oort:mode=papers"], "mode is 'papers' try: known: paper"),
        (["--selector", "fedprox:mu=much"], "mu is 'much' try: give a number from 0 to 1e+06"),
        (["--selector", "fedavg:x=1"], "selector 'fedavg' has no option 'x'"),
        (["--selector", "oort:"], "'oort:': not a selector"),
        (["--selector", "oort:mode"], "'mode' is no option"),
        (["--selector", "oort:mode=paper,mode=official"], "'mode' is given twice"),
        (["--selector", ""], "--selector: no selector"),
        (["--selector", "oort,oort"], "oort: comes twice"),
        (["--selector", "oort,oort:mode=paper"], "oort (mode=paper): comes twice, as oort"),
        (
            ["--set", "reward.alpha=" + ",".join(map(str, range(1000))), "--seeds", "0-999"],
            "1,000,000 emulations (1 selectors x 1,000 reward.alpha x 1,000 seeds) are too many",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(
    arguments: list[str], said: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert joulefleet(["emulate", str(file), *arguments, "--root", str(tmp_path / "e")]) == 3
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"protocol.kk" = [1]', "did you mean 'protocol.k'"),
        ("protocol.k = 5", "is not a list of values"),
        ("protocol.k = []", "a value is missing"),
        ('protocol.k = ["x"]', "sweep: protocol.k: Input should be a valid integer"),
        ("", r"\[sweep\] is empty"),
        ("selectors = []", "not a list of names"),
        ("selectors = [3]", "is not the name of one"),
        ('selectors = [{nam = "oort"}]', "unknown key"),
        ('"protocol.k" = [1]\nprotocol.k = [2]', "is there twice"),
    ],
)
def test_a_sweep_of_a_file_is_checked_as_it_is_read(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(SCENARIO + "[sweep]\n" + text)
    with pytest.raises(ConfigError, match=said) as raised:
        load_scenario(file)
    assert "sweep.toml" in raised.value.message


def test_a_sweep_is_one_run_paired_by_seed_and_named_everywhere(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(SCENARIO + '[sweep]\nselectors = ["oort:mode=official", "fedavg"]\nprotocol.k = [2, 3]\n')
    arguments = ["emulate", str(file), "--root", str(tmp_path / "e")]
    assert joulefleet([*arguments, "--dry-run"]) == 0
    assert "would run 8 emulations: 2 selectors x 2 protocol.k x 2 seeds" in " ".join(
        capsys.readouterr().out.split()
    )
    assert not (tmp_path / "e").exists()
    assert joulefleet(arguments) == 0
    told = capsys.readouterr()
    assert "8 emulations: 2 selectors x 2 protocol.k x 2 seeds, 16 rounds" in told.err
    (path,) = (tmp_path / "e").iterdir()
    names = ["oort (mode=official, k=2)", "oort (mode=official, k=3)", "fedavg (k=2)", "fedavg (k=3)"]
    assert all(name in told.out for name in names)
    compared = compare_emulations(path)
    assert list(compared.comparison.cells) == names
    assert compared.comparison.references[0] == names[0]
    assert joulefleet(["report", str(path)]) == 0
    page = (path / "report.html").read_text()
    assert all(name in page for name in names)
    # Each is what a scenario of its own would have been, the same seeds in the same world.
    alone = run_all(
        SMALL.model_copy(update={"protocol": SMALL.protocol.model_copy(update={"k": 2})}),
        selectors=["oort:mode=official"], seeds=[1], out=tmp_path / "alone",
    )  # fmt: skip
    for table in TABLES:
        mine = (path / "oort_mode-official_k-2_s1" / table).read_bytes()
        assert mine == (alone.results[0].path / table).read_bytes()


def test_other_differences_than_those_swept_are_refused(tmp_path: Path) -> None:
    swept = run_all(SMALL, settings={"protocol.k": [2, 3]}, seeds=[0], out=tmp_path)
    other = SMALL.model_copy(update={"energy": "gross"})
    more = run_all(other, settings={"protocol.k": [2]}, selectors=["oort"], seeds=[0], out=tmp_path)
    with pytest.raises(Exception, match=r"the scenarios differ \(energy\)"):
        compare_emulations([swept.path, more.path])


def test_one_emulation_that_cannot_be_played_does_not_stop_the_others(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"1 of 2 emulations cannot be played.*'nosuch'"):
        run_all(SMALL, settings={"task.name": ["nosuch", "mnist-lenet5"]}, seeds=[0], out=tmp_path)
    (path,) = tmp_path.iterdir()
    done = [folder.name for folder in path.iterdir() if (folder / "rounds.parquet").exists()]
    assert done == ["fedavg_task.name-mnist-lenet5_s0"]


def test_a_sweep_that_is_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "CHECKPOINT_PERIOD_S", 0.0)
    settings = {"protocol.k": [2, 3], "reward.alpha": [1, 2]}
    whole = run_all(SMALL, settings=settings, out=tmp_path / "whole")
    count = 0

    def stop(_: object) -> None:
        nonlocal count
        count += 1
        if count % 5 == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        run_all(SMALL, settings=settings, out=tmp_path / "cut", on_round=stop)
    (cut,) = (tmp_path / "cut").iterdir()
    assert f"`joulefleet emulate --resume {cut}` goes on" in stopped.value.__notes__[0]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            resume(cut, on_round=stop)
    again = resume(cut)
    for one, other in zip(again.results, whole.results, strict=True):
        assert one.record == other.record
        assert [(one.path / t).read_bytes() for t in TABLES] == [
            (other.path / t).read_bytes() for t in TABLES
        ]


def test_a_sweep_is_no_single_scenario(tmp_path: Path) -> None:
    from emulator.environment import EmulatorEnv

    swept = SMALL.model_copy(update={"sweep": {"protocol.k": [2, 3]}})
    with pytest.raises(ConfigError, match="is a sweep of 2 variants"):
        run(swept, out=tmp_path)
    with pytest.raises(ConfigError, match="is a sweep"):
        EmulatorEnv(swept).reset(seed=0)
    file = tmp_path / "swept.toml"
    file.write_text(SCENARIO + "[sweep]\nprotocol.k = [2, 3]\n")
    with pytest.raises(ConfigError, match="a bench plays one scenario"):
        read_federate_files(str(file), tmp_path / "devices.toml")


def test_an_index_from_before_sweeps_keeps_its_hash() -> None:
    index = plan(SMALL, ["fedavg", "oort"], [0])
    old = json.loads(index.to_json())
    for planned in old["planned"]:
        assert planned.pop("options") is None
        assert planned.pop("settings") is None
    old["scenario"].pop("sweep")
    assert type(index).model_validate(old).sha256() == index.sha256()
    assert [one.folder for one in index.planned] == ["fedavg_s0", "oort_s0"]


def test_results_of_several_runs_open_in_one_call(tmp_path: Path) -> None:
    first = run_all(SMALL, selectors=["oort:mode=official", "oort"], seeds=[0], out=tmp_path / "a")
    other = run_all(SMALL, settings={"protocol.k": [2, 3]}, seeds=[4], out=tmp_path / "b")
    found = load_results(tmp_path / "a", [str(tmp_path / "b")])
    rounds = found.rounds
    assert list(rounds.columns[:5]) == ["method", "selector", "seed", "selector.options.mode", "protocol.k"]
    assert rounds.groupby("method", sort=False)["seed"].first().to_dict() == {
        "oort (mode=official)": 0, "oort": 0, "fedavg (k=2)": 4, "fedavg (k=3)": 4,
    }  # fmt: skip
    assert rounds["protocol.k"].dropna().tolist() == [2, 2, 3, 3]
    assert rounds["selector.options.mode"].dropna().tolist() == ["official"] * 2
    parts = [*first.rounds["energy_j"], *other.rounds["energy_j"]]
    assert rounds["energy_j"].tolist() == parts
    assert len(found.clients) == len(first.clients) + len(other.clients)
    assert found.emulations["path"].tolist() == [str(one.path) for one in found.results]
    record = other.results[0].path / "emulation.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "rounds": None}))
    again = load_results(tmp_path / "a", tmp_path / "b")
    assert len(again.results) == 3
    assert "not finished, left out" in again.left_out[0]
    for nothing in ([], [tmp_path / "nowhere"], [tmp_path / "a" / first.path.name / "config"]):
        with pytest.raises(JoulefleetError):
            load_results(*nothing)
