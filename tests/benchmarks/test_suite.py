"""The suite around the benchmarks: what it keeps, what it writes down, when it calls something worse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import __main__ as suite
from benchmarks import million_devices
from benchmarks.result import Figure, figure
from benchmarks.suite import peers, runner
from benchmarks.suite.check import LIMIT, Verdict, compare
from benchmarks.suite.machine import this_machine
from benchmarks.suite.records import PAGE, PUBLISHED, ModuleResult, Published, measured
from benchmarks.suite.report import page
from joulefleet.records import read_record, write_record

MACHINE = this_machine()
QUICK = "run_store"


def module(*figures: Figure, name: str = "decode", **more: Any) -> ModuleResult:
    return ModuleResult(
        module=name,
        measured_at="2026-01-02T03:04:05+00:00",
        commit="abc",
        full=True,
        took_s=61.0,
        load_before=0.5,
        load_after=1.5,
        figures=figures,
        machine=MACHINE,
        **more,
    )


def ratio(*values: float, name: str = "ours to theirs", unit: str = "x", **more: Any) -> Figure:
    return figure("decode", name, values, unit, **more)


def verdicts(then: Figure, now: Figure) -> list[Verdict]:
    return [one.verdict for one in compare([module(then)], [module(now)])]


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ((9.0, 10.0, 11.0), (7.0, 7.5, 8.0), Verdict.WORSE),
        ((9.0, 10.0, 11.0), (8.4, 8.5, 8.6), Verdict.SAME),  # by 18 %
        ((6.0, 10.0, 11.0), (5.0, 7.0, 7.5), Verdict.NOISY),  # by 43 %, but it was as low before
        ((9.0, 10.0, 11.0), (20.0, 21.0, 22.0), Verdict.SAME),
        ((10.0,), (5.0, 5.0), Verdict.ONCE),
        ((10.0, 10.0), (0.0, 0.0), Verdict.WORSE),
    ],
)
def test_a_ratio_is_worse_if_all_its_repeats_are(
    then: tuple[float, ...], now: tuple[float, ...], expected: Verdict
) -> None:
    assert verdicts(ratio(*then), ratio(*now)) == [expected]
    if min(now) > 0:  # the same upside down, where less is better
        upside_down = (ratio(*(1 / value for value in values), better="lower") for values in (then, now))
        assert verdicts(*upside_down) == [expected]


@given(
    then=st.lists(st.floats(0.1, 100), min_size=2, max_size=7),
    now=st.lists(st.floats(0.1, 100), min_size=2, max_size=7),
)
@settings(deadline=None)
def test_noise_does_not_cry_wolf(then: list[float], now: list[float]) -> None:
    (found,) = compare([module(ratio(*then))], [module(ratio(*now))])
    assert found.loss is not None
    worse = found.loss > LIMIT and max(now) < min(then)
    assert (found.verdict is Verdict.WORSE) == worse
    assert verdicts(ratio(*then), ratio(*then)) == [Verdict.SAME]


def test_absolute_figures_are_never_compared() -> None:
    fast, slow = (ratio(value, value, unit="x real time") for value in (100.0, 1.0))
    assert verdicts(fast, slow) == []


def test_what_is_new_gone_or_failed_is_told_apart() -> None:
    old, new = ratio(1.0, 1.1, name="old"), ratio(1.0, 1.1, name="new")
    assert [(one.name, one.verdict) for one in compare([module(old)], [module(new)])] == [
        ("old", Verdict.GONE),
        ("new", Verdict.NEW),
    ]
    assert [one.verdict for one in compare([], [module(new)])] == [Verdict.NEW]
    assert compare([module(old)], []) == []  # a module that was not run says nothing
    (failed,) = compare([module(old)], [module(error="OSError: no disk\nmore")])
    assert (failed.verdict, failed.name) == (Verdict.FAILED, "OSError: no disk")


@pytest.mark.parametrize(
    ("now", "code", "said"),
    [
        (module(ratio(9.0, 10.0)), 0, "1 ratios, 0 of them worse"),
        (module(ratio(4.0, 5.0)), 1, "2.11 x worse"),
        (module(error="RuntimeError: peer hangs"), 1, "RuntimeError: peer hangs"),
        (module(), 1, "GONE"),
    ],
)
def test_the_check_has_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], now: ModuleResult, code: int, said: str
) -> None:
    committed, results = tmp_path / "committed.json", tmp_path / "results"
    results.mkdir()
    write_record(committed, Published(modules=(module(ratio(9.0, 10.0)),)))
    write_record(results / "decode.json", now)
    assert suite.main(["--check", "--against", str(committed), "--results", str(results)]) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "broken", ["{", '{"modules": [{"module": 1}]}', '{"modules": [], "schema_version": 9}']
)
def test_results_that_cannot_be_read_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    committed = tmp_path / "committed.json"
    committed.write_text(broken)
    write_record(tmp_path / "decode.json", module())
    committed.rename(tmp_path / "committed.txt")
    assert (
        suite.main(["--check", "--against", str(tmp_path / "committed.txt"), "--results", str(tmp_path)]) == 2
    )
    assert "committed.txt" in capsys.readouterr().err


def test_nothing_measured_is_not_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main(["--check", "--results", str(tmp_path / "none")]) == 2
    assert "make bench" in capsys.readouterr().err


def test_an_unknown_benchmark_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main(["nothing", "--results", str(tmp_path)]) == 2
    assert "lvpm_decode" in capsys.readouterr().err


def test_a_run_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "names", lambda: [QUICK])
    run: Callable[[], int] = lambda: suite.main(["--results", str(tmp_path)])  # noqa: E731
    stored = tmp_path / f"{QUICK}.json"
    assert run() == 0
    first = read_record(stored, ModuleResult)
    assert [one.unit for one in first.figures] == ["x", "x real time"]
    assert first.machine == MACHINE
    (tmp_path / suite.FINISHED).unlink()  # as if it had been killed after this module
    assert run() == 0
    assert read_record(stored, ModuleResult) == first
    assert f"{QUICK}: kept" in capsys.readouterr().out
    assert run() == 0  # that run was complete, so this is a new one
    assert read_record(stored, ModuleResult) != first


def test_a_module_that_fails_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "names", lambda: ["not_there"])
    for _ in range(2):
        assert suite.main(["--results", str(tmp_path)]) == 1
        assert "No module named 'benchmarks.not_there'" in capsys.readouterr().out
    assert not (tmp_path / suite.FINISHED).exists()


def test_a_module_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LIMIT_S", 0.1)
    assert runner.run_in_child(QUICK, tmp_path).error == "its process ended with signal 9"
    assert [one.module for one in measured(tmp_path)] == [QUICK]


def test_every_module_is_listed_and_nothing_else() -> None:
    found = runner.names()
    assert {"largest_fleet", "million_devices", "multi_client_training", QUICK} <= set(found)
    assert not {"memory", "result", "suite", "__main__"} & set(found)


def test_the_page_says_what_was_missed_and_where() -> None:
    missed = ratio(2.0, 3.0, name="a|b", bar=5.0, note="why")
    reached = ratio(12_345.6, unit="B", name="size", bar=20_000.0, better="lower")
    text = page(Published(modules=(module(missed, reached), module(name="other", error="OSError: disk"))))
    assert "1 of 2 bars are reached" in text
    assert "| a/b | **2.5 x** | 2 to 3 | 2 | >= 5 MISSED | why |" in text
    assert "| size | 12,346 B |  | 1 | <= 20000 ok |  |" in text
    assert "**failed**: other: OSError: disk" in text
    assert "1.0 min, load average 0.5 before and 1.5 after" in text
    assert MACHINE.cpu in text
    assert str(Path.cwd()) not in text


def test_the_page_is_that_of_the_published_results() -> None:
    if not PUBLISHED.exists():
        pytest.skip("nothing has been published yet")
    assert PAGE.read_text() == page(read_record(PUBLISHED, Published))


def test_one_module_is_published_beside_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not run again keeps its figures; what is no benchmark any more goes."""
    published, results = tmp_path / "benchmarks.json", tmp_path / "results"
    results.mkdir()
    for name, path in (("PUBLISHED", published), ("PAGE", tmp_path / "benchmarks.md")):
        monkeypatch.setattr(suite, name, path)
    old = [module(ratio(1.0, 1.1), name=name) for name in ("energy_windows", "gone", QUICK)]
    write_record(published, Published(modules=tuple(old)))
    write_record(results / f"{QUICK}.json", module(ratio(3.0, 3.1), name=QUICK))
    assert suite.main(["--publish", "--results", str(results)]) == 0
    found = read_record(published, Published).modules
    assert [(one.module, one.figures[0].low) for one in found] == [("energy_windows", 1.0), (QUICK, 3.0)]
    assert "## energy_windows" in (tmp_path / "benchmarks.md").read_text(encoding="utf-8")


def test_a_peer_that_does_not_install_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "REPOSITORY", tmp_path)
    monkeypatch.setattr(peers, "REQUIREMENTS", tmp_path)
    (tmp_path / "requirements-none.txt").write_text("./no-such-folder\n")
    with pytest.raises(peers.PeerUnavailable, match="no-such-folder"):
        peers.peer_python("none")
    (tmp_path / "requirements-none.txt").write_text("")
    python = peers.peer_python("none")
    made = (tmp_path / ".venv-peers-none" / peers.MARK).stat().st_mtime_ns
    assert python.exists()
    assert peers.peer_python("none") == python
    assert (tmp_path / ".venv-peers-none" / peers.MARK).stat().st_mtime_ns == made


def test_the_million_devices_are_played_and_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert million_devices.main("surrogate-1m", "fedrank", "3000", "3") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["round_cpu_s"]) == 2
    assert len(found["selection_s"]) == 3
    assert 0 < found["client_epochs"] <= 3 * 1400
    assert found["training"] == "surrogate"
    assert million_devices.main("surrogate-1m", "favor", "3000", "3") == million_devices.REFUSED
    assert "'favor' serves at most 1,000 devices" in capsys.readouterr().out
