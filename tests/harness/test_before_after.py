import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import numpy as np
import pytest

from harness.cli import run
from harness.cli.frame import share
from harness.profiles.difference import QuantityChange
from harness.profiles.library import build_run_profiles
from harness.results.gate import Outcome, check_profiles
from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.provenance import Instrument, Origin, Provenance
from joulefleet.runstore import RunStore
from power import DeviceProfile
from power.profile import PhaseCost, Quantity, quantity_from_sessions
from tests.harness.profile_captures import DeviceFacts, one_round, write

SCATTER = (0.98, 1.01, 1.0, 1.02, 0.99)


def bench(root: Path, *, train_w: float, device: str = "board", count: int = 5, **facts: Any) -> Path:
    """A run of some repetitions whose epochs scatter by 1.6 %; its later epochs take 0.9 s."""
    with RunStore(root).create("bench", kind="bench") as made:
        for i, factor in enumerate(SCATTER[:count]):
            stretches = one_round([1.0, 0.9], train_w=train_w * factor)
            name = f"{made.record.run_id}/{device}-{i}"
            board = DeviceFacts(name=device, transport="ssh", **facts)
            write(made.path / "jobs" / f"{i}", stretches, emulated=False, capture_id=name, device=board)
    build_run_profiles(made.path)
    return made.path


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The second takes 20 % more power, with a newer torch."""
    root = tmp_path_factory.mktemp("bench") / "runs"
    before = bench(root, train_w=3.0, python="3.11.2", facts={"torch": "2.12.0"})
    return before, bench(root, train_w=3.6, python="3.11.2", facts={"torch": "2.13.0"})


def ask(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def told(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    capsys.readouterr()
    assert run([*map(str, arguments)]) == code
    return capsys.readouterr().out


def of(values: list[float], instrument: float | None = None) -> Quantity:
    systematic = {} if instrument is None else {"systematic_half_width": instrument}
    made = quantity_from_sessions([values], **systematic)
    return made.model_copy(update={"instrument_half_width_95": instrument})


def test_ratio_by_hand() -> None:
    before, after = of([1.9, 2.0, 2.1]), of([2.1, 2.2, 2.3])
    found = QuantityChange("epoch.gross_j", before, after).ratio
    # sd 0.1 both; t(2) = 4.3027; half widths 0.24842 of 2.0 and of 2.2, in squares on the log scale
    width = math.hypot(4.302653 * 0.1 / math.sqrt(3) / 2.0, 4.302653 * 0.1 / math.sqrt(3) / 2.2)
    assert found.mean == pytest.approx(1.1)
    assert found.low == pytest.approx(1.1 * math.exp(-width), rel=1e-6)
    assert found.high == pytest.approx(1.1 * math.exp(width), rel=1e-6)
    assert not QuantityChange("epoch.gross_j", before, after).clear


def test_what_rounding_leaves_is_no_change() -> None:
    change = QuantityChange("x", of([0.1 + 0.2, 0.3, 0.3]), of([0.3, 0.3, 0.3]))
    assert change.ratio.mean != 1.0
    assert change.percent_text() == "+0 % [+0, +0]"
    assert QuantityChange("x", of([1.0, 1.0, 1.0]), of([1.2, 1.2, 1.2])).percent_text() == "+20 % [+20, +20]"


def test_what_one_unit_reads_wrong_cancels() -> None:
    before, after = of([1.99, 2.0, 2.01], 0.20), of([2.19, 2.2, 2.21], 0.22)
    apart = QuantityChange("x", before, after).ratio
    together = QuantityChange("x", before, after, same_unit=True).ratio
    assert not QuantityChange("x", before, after).clear, "10 % of each side hide 10 %"
    assert QuantityChange("x", before, after, same_unit=True).clear
    alone = QuantityChange("x", of([1.99, 2.0, 2.01]), of([2.19, 2.2, 2.21])).ratio
    assert together.low == pytest.approx(alone.low, rel=1e-9), "both gains are 10 %: nothing of them is left"
    assert apart.high - apart.low > 5 * (together.high - together.low)


def test_ratios_cover_the_truth() -> None:
    rng = np.random.default_rng(7)
    hits = []
    for _ in range(1500):
        before = of(list(rng.normal(5.0, 0.15, 4)))
        after = of(list(rng.normal(5.5, 0.30, 6)))
        ratio = QuantityChange("x", before, after).ratio
        hits.append(ratio.low <= 1.1 <= ratio.high)
    assert 0.935 <= np.mean(hits) <= 0.985


def test_one_window_is_no_interval_of_repetitions() -> None:
    one = Quantity(mean=2.0, n=1, half_width_95=0.01, sessions=1)
    change = QuantityChange("x", one, one)
    assert change.ratio.mean == 1.0
    assert not change.ratio.known
    assert change.exceeds(0.05) is None


@pytest.mark.parametrize(
    ("later", "exceeds"),
    [([2.00, 2.01, 2.02], False), ([2.30, 2.31, 2.32], True), ([2.05, 2.10, 2.15], None)],
)
def test_gate_fails_only_beyond_the_interval(later: list[float], exceeds: bool | None) -> None:
    change = QuantityChange("x", of([1.99, 2.0, 2.01]), of(later))
    assert change.exceeds(0.05) is exceeds


def test_repetitions_that_would_tell() -> None:
    change = QuantityChange("x", of([2.0, 2.0, 2.0, 2.001]), of([2.0, 2.1, 2.2]))
    assert change.exceeds(0.10) is None
    needed = change.repetitions_needed(0.10)
    assert needed is not None
    # ln(1.05 / 1.10) = 0.0465 has to hold t * 0.1 / sqrt(n) / 2.1: 7 fit (t = 2.447, 0.0440), 6 not (0.0500)
    assert needed == 7
    assert change.repetitions_needed(0.05) is None, "the mean lies on the limit"
    wide = QuantityChange("x", of([1.8, 2.0, 2.2]), of([2.0, 2.1, 2.2]))
    assert wide.repetitions_needed(0.06) is None, "more of the second run cannot make up for the first"


def test_a_stated_spread_between_sessions_widens() -> None:
    change = QuantityChange("x", of([1.99, 2.0, 2.01]), of([2.19, 2.2, 2.21]))
    assert change.sessions_unknown
    wider = QuantityChange("x", change.before, change.after, between_sessions=0.03)
    assert not wider.sessions_unknown
    assert change.clear
    width = math.log(wider.ratio.high / wider.ratio.mean)
    narrow = math.log(change.ratio.high / change.ratio.mean)
    assert width == pytest.approx(math.hypot(narrow, 1.959964 * 0.03 * math.sqrt(2)), rel=1e-5)


def test_compare_two_runs(two_runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = two_runs
    data = ask(capsys, "bench", "compare", before, after)
    (found,) = data["differences"]
    changes = {change["place"]: change for change in found["changes"]}
    energy = changes["epoch.gross_j"]
    assert energy["ratio"] == pytest.approx(1.2, rel=1e-3)
    assert energy["clear"]
    assert energy["ratio_low_95"] < 1.2 < energy["ratio_high_95"]
    assert not changes["epoch.duration_s"]["clear"]
    assert data["conditions"]["board"] == ["torch: 2.12.0, now 2.13.0"]
    text = told(capsys, "bench", "compare", before, after)
    first = text.splitlines()[0]
    assert first.startswith("board, mnist-lenet5 with torch: an epoch takes 20 % more energy [")
    assert "torch: 2.12.0, now 2.13.0" in text
    assert "net_j" not in text
    assert "epoch.net_j" in told(capsys, "bench", "compare", before, after, "--all")
    assert told(capsys, "bench", "compare", before, before).splitlines()[-1] == "nothing else differs"


def test_check_fails_passes_and_says_cannot_tell(
    two_runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (before, after), junit = two_runs, tmp_path / "gate.xml"
    check = ("bench", "check", after, "--against", before, "--junit", junit, "--max-increase")
    failed = ask(capsys, *check, "5%", code=1)
    assert {one["outcome"] for one in failed["checks"]} == {"failed"}
    (suite,) = ET.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "2", "0")
    message = suite[0][0].get("message") or ""
    assert re.fullmatch(r"\+20 % \[\+1\d, \+2\d\]; \+5 % is allowed", message), "as on the terminal"
    assert {one["outcome"] for one in ask(capsys, *check, "40%")["checks"]} == {"passed"}
    unsure = ask(capsys, *check, "0.20")
    assert {one["outcome"] for one in unsure["checks"]} == {"cannot tell"}
    assert (ET.parse(junit).getroot())[0].get("skipped") == "2"
    ask(capsys, *check, "20%", "--strict", code=6)
    (profile,) = (before / "profiles").glob("*.json")
    against = ("bench", "check", after, "--max-increase", "5%", "--against")
    assert ask(capsys, *against, profile, code=1) == failed
    assert ask(capsys, *against, profile.stem[-8:], code=1) == failed, "by its id"
    ask(capsys, *against, profile, "--quantity", "epoch.duration_s", code=0)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--max-increase", "much"), 2, "neither 5% nor 0.05"),
        (("--max-increase", "-5%"), 2, "no share"),
        (("--max-increase", "nan"), 2, "no share"),
        (("--max-increase", "5%", "--quantity", "epoch.joules"), 3, "epoch.duration_s, epoch.gross_j"),
        (("--max-increase", "5%", "--against", "nowhere"), 3, "no profile 'nowhere'"),
    ],
)
def test_bad_input(
    two_runs: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    made = two_runs[0]
    against = () if "--against" in arguments else ("--against", made)
    assert run([*map(str, ("bench", "check", made, *against, *arguments))]) == code
    assert said in capsys.readouterr().err


def test_what_was_not_measured_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    board = bench(root, train_w=3.0, count=3)
    phone = bench(root, train_w=3.0, device="phone", count=2)
    both = ask(capsys, "profile", "build", board, phone)
    assert len(both["profiles"]) == 2
    together = Path(both["profiles"][0]["place"]).parent.parent
    found = ask(capsys, "bench", "check", board, "--against", together, "--max-increase", "50%", code=6)
    outcomes = {(one["label"].split("/")[0], one["outcome"]) for one in found["checks"]}
    assert outcomes == {("board", "passed"), ("phone", "not measured")}


def test_other_work_is_refused(two_runs: tuple[Path, Path]) -> None:
    from harness.profiles.library import run_profiles
    from joulefleet.errors import ConfigError

    (stored,) = run_profiles(two_runs[0])
    other = stored.profile.model_copy(update={"batch_size": 64})
    with pytest.raises(ConfigError, match="batch size: 32, now 64"):
        check_profiles([other], [stored.profile], 0.05)
    (first, _) = check_profiles([stored.profile], [stored.profile], 0.5)
    assert first.outcome is Outcome.PASSED


def test_history_and_names(
    two_runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, second), root = two_runs, two_runs[0].parent
    rows = ask(capsys, "profile", "history", "board", "--root", root)
    assert [row["run"] for row in rows] == sorted([first.name, second.name]), "oldest first"
    assert len({row["id"] for row in rows}) == 2
    page = tmp_path / "board.html"
    text = told(capsys, "profile", "history", "board", "--root", root, "--out", page)
    assert "+20 %" in text or "-17 %" in text, "two runs may begin within one second"
    answer = re.search(r'class="answers"><li>(.*?)</li>', page.read_text())
    assert answer is not None
    assert re.search(
        r"a clear change of the energy of an epoch, (\+20|-17) % \[[+-]\d+, [+-]\d+\]", answer[1]
    )
    out = tmp_path / "out"
    told(capsys, "profile", "export", "--root", root, "--out", out)
    assert len(list(out.iterdir())) == 2, "a device that was measured twice"
    listed = told(capsys, "profile", "list", "--root", root, "--no-reference")
    assert all(row["id"] in listed for row in rows)
    assert listed.splitlines()[1].startswith("board  "), "no mark of ours at the beginning of a line"
    assert told(capsys, "profile", "show", rows[0]["id"], "--root", root).startswith("board: lenet5 on mnist")
    assert run(["profile", "show", "board", "--root", str(root)]) == 3
    assert rows[0]["id"] in capsys.readouterr().err, "an ambiguous name lists what tells them apart"
    assert run(["profile", "history", "bord", "--root", str(root)]) == 3
    assert "did you mean 'board'" in capsys.readouterr().err


def profile_of(values: list[float], **changes: Any) -> DeviceProfile:
    """A profile of board/m with such epochs; what else is not the same is given."""
    cost = PhaseCost(duration_s=of([1.0, 1.01, 0.99]), gross_j=of(values))
    origin = changes.pop("origin", Origin.IMPORTED)
    emulated = origin is Origin.EMULATED
    instrument = Instrument(kind="monsoon-lvpm", serial=changes.pop("serial", "1"), emulated=emulated)
    base: dict[str, Any] = {
        "device": "board", "model": "m", "dataset": "d", "backend": "torch", "samples": 64, "batch_size": 32,
        "local_epochs": 2, "threads": 1, "synthetic_data": False, "warmup_epochs": 0,
        "probe": cost, "epoch": cost,
        "provenance": Provenance(origin=origin, instrument=instrument, basis="by hand"),
    }  # fmt: skip
    return DeviceProfile(**{**base, **changes})


SAME = [2.0, 2.01, 1.99, 2.0]


@pytest.mark.parametrize(
    ("against", "found", "outcome"),
    [
        (profile_of(SAME), profile_of(SAME), "passed"),
        (profile_of(SAME), profile_of([2.4, 2.41, 2.39, 2.4]), "failed"),
        (profile_of(SAME), profile_of([2.0]), "cannot tell"),
        (profile_of([2.0]), profile_of(SAME), "cannot tell"),
        (profile_of(SAME), profile_of([2.0, 2.4]), "cannot tell"),
        (profile_of(SAME), profile_of(SAME, origin=Origin.EMULATED), "cannot tell"),
        (profile_of(SAME, origin=Origin.EMULATED), profile_of([9.0, 9.1, 9.0]), "cannot tell"),
    ],
    ids=["same", "more", "one repetition", "one before", "two far apart", "emulated now", "emulated before"],
)  # fmt: skip
def test_the_gate_is_not_fooled(against: DeviceProfile, found: DeviceProfile, outcome: str) -> None:
    checks = check_profiles([found], [against], 0.05)
    assert {check.outcome.value for check in checks} == {outcome}
    assert all(bool(check.reason) == (outcome == "cannot tell") for check in checks)


def test_another_backend_or_other_work_is_not_compared() -> None:
    with pytest.raises(DataQualityError, match="no profile of"):
        check_profiles([profile_of(SAME, backend="onnxruntime")], [profile_of(SAME)], 0.05)
    for changed in ({"samples": 32}, {"batch_size": 16}, {"threads": 2}, {"synthetic_data": True}):
        with pytest.raises(ConfigError, match="not the same work"):
            check_profiles([profile_of(SAME, **changed)], [profile_of(SAME)], 0.05)


def test_another_instrument_counts_with_both_errors() -> None:
    def read(values: list[float]) -> PhaseCost:
        return PhaseCost(duration_s=of([1.0, 1.01, 0.99]), gross_j=of(values, 0.1))

    one = profile_of(SAME, epoch=read(SAME), probe=read(SAME))
    assert {c.outcome.value for c in check_profiles([one], [one], 0.05)} == {"passed"}
    other = profile_of(SAME, epoch=read(SAME), probe=read(SAME), serial="2")
    assert {c.outcome.value for c in check_profiles([other], [one], 0.05)} == {"cannot tell"}


@pytest.mark.parametrize("limit", ["5", "1", "1.5", "nan", "inf", "-5%", "5 %%", "1e9%"])
def test_a_limit_that_is_no_share_is_refused(limit: str) -> None:
    with pytest.raises(click.BadParameter):
        share(limit)
