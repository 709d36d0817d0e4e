"""The same round both ways: statistics by hand and by draws, then real agents under emulated meters."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agents.protocol import ProbeDone
from emulator.round.accounting import round_costs
from emulator.round.outcome import Accounting
from harness.bench.job.failures import AttemptRecord
from harness.bench.job.hooks import Ending, Stopped
from harness.cli import run as joulefleet
from harness.evidence.capture import DeviceFacts, open_capture
from harness.inventory import Inventory, load_inventory
from harness.outputs import EPOCHS_FILE, OUTPUTS
from harness.probing.expected import Expectation, RunRound, fitting_profiles
from harness.probing.plan import ProbingPlan, load_probing_plan
from harness.probing.run import ProbingFiles, ProbingOutcome, read_probing_files, run_probing
from harness.probing.savings import (
    MeasuredRound,
    PairedSeries,
    RoundEnergy,
    probing_weights,
    saved,
    saved_share,
    vanilla_weights,
)
from harness.probing.schedule import expand_rounds, fingerprint, kept
from harness.probing.validation import validate_run
from harness.profiles.build import build_profile
from harness.profiles.library import build_run_profiles
from harness.report.page import REPORT_FILE
from harness.rounds.measured import MeasuredPart, PhaseReading, read_part
from harness.rounds.record import ProbingRoundRecord, read_probing_rounds
from harness.rounds.server import Report, RoundServer
from joulefleet.config import parse_toml
from joulefleet.errors import CalledOff, ConfigError, DataQualityError
from joulefleet.records import read_record, write_record
from joulefleet.runstore import RunStore, read_journal
from joulefleet.runstore.run import RunRecord, RunStatus
from tests.conftest import REPOSITORY
from tests.harness.in_threads import in_threads
from tests.harness.local_bench import LocalBench, local_bench
from tests.harness.profile_captures import one_round, write

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")

EXAMPLES = REPOSITORY / "examples"
SMALL = 'task = "softmax"\nbackend = "numpy"\n'


def plan_of(text: str) -> ProbingPlan:
    return parse_toml(SMALL + text, ProbingPlan, name="probing.toml")


@pytest.fixture
def inventory() -> Inventory:
    return load_inventory(EXAMPLES / "devices.toml")


# The plan and its rounds.


def test_the_example_is_a_plan_for_the_example(inventory: Inventory) -> None:
    plan = load_probing_plan(EXAMPLES / "probing.toml")
    rounds = expand_rounds(plan, inventory)
    assert plan.pairs() == [(2, 1), (2, 2), (3, 1), (3, 2)]
    assert len(rounds) == 5 * (1 + 2 + 1 + 2)
    assert len({round_.name for round_ in rounds}) == len(rounds)
    numbers = [job.number for round_ in rounds for job in round_.jobs]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("candidates = [3]\nchosen = [4]", "chosen: 4 of 3 candidates cannot go on"),
        ("candidates = [1, 3]\nchosen = [2]", "candidates: of 1 no 2 can go on"),
        ("candidates = []\nchosen = [2]", "candidates"),
        ("candidates = [3]\nchosen = [0]", r"chosen\[0\]"),
        ("candidates = [3, 3]\nchosen = [2]", "listed twice"),
        ("candidates = [3]\nchosen = [2]\nlocal_epochs = 1", "local_epochs"),
        ("candidates = [3]\nchosen = [2]\nkeep = 'cheapest'", "keep"),
        ("candidates = [3]\nchosen = [2]\nrepetition = 3", "repetition: unknown key"),
        ("candidates = [3]\nchosen = [2]\n[timing]\nidle = 3", r"timing\.idle: unknown key"),
    ],
)
def test_bad_plans(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(text)


def test_a_backend_that_does_not_train_the_task() -> None:
    with pytest.raises(ConfigError, match="does not train"):
        parse_toml(
            'task = "mnist-lenet5"\nbackend = "numpy"\ncandidates = [2]\nchosen = [1]', ProbingPlan, name="p"
        )


@pytest.mark.parametrize(
    ("devices", "m", "message"),
    [
        ("['pi', 'phone']", 3, "3 candidates, but the bench has 2 devices"),
        ("['left', 'right', 'pi']", 3, "only 2 of the 3 devices .* left and right share a meter"),
        ("['pi', 'phon']", 2, "no device 'phon'"),
    ],
)
def test_fewer_devices_than_candidates(inventory: Inventory, devices: str, m: int, message: str) -> None:
    plan = plan_of(f"devices = {devices}\ncandidates = [{m}]\nchosen = [1]")
    with pytest.raises(ConfigError, match=message):
        expand_rounds(plan, inventory)


def test_candidates_never_share_a_meter(inventory: Inventory) -> None:
    plan = plan_of("devices = ['left', 'right', 'pi']\ncandidates = [2]\nchosen = [1]\nrepetitions = 30")
    rounds = expand_rounds(plan, inventory)
    assert {r.candidates for r in rounds} == {("left", "pi"), ("right", "pi")}


def test_both_ways_of_a_repetition_have_the_same_candidates(inventory: Inventory) -> None:
    plan = plan_of("candidates = [2, 3]\nchosen = [1, 2]\nrepetitions = 20")
    rounds = expand_rounds(plan, inventory)
    for repetition in range(1, 21):
        for m in (2, 3):
            block = [r for r in rounds if r.repetition == repetition and len(r.candidates) == m]
            assert {r.chosen for r in block} == {None, 1, 2}
            assert len({r.candidates for r in block}) == 1
    assert len({r.candidates for r in rounds}) > 3, "not always the same devices"
    orders = {tuple(r.chosen for r in rounds[i : i + 6]) for i in range(0, len(rounds), 6)}
    assert len(orders) > 3, "not always in the same order"
    assert rounds == expand_rounds(plan, inventory)
    listed = expand_rounds(plan.model_copy(update={"order": "listed"}), inventory)
    assert [r.chosen for r in listed[:6]] == [None, 1, 2, None, 1, 2]


def test_who_is_kept() -> None:
    reports = {"a": 3.0, "b": 1.0, "c": 2.0, "d": 1.0}
    assert kept("fastest", 1, "abcd", 2, 1, reports) == {"b", "d"}
    draws = [kept("random", 1, "abcd", 2, n, reports) for n in range(1, 60)]
    assert {len(draw) for draw in draws} == {2}
    assert len(set(draws)) == 6, "every pair comes up"
    assert draws[0] == kept("random", 1, "abcd", 2, 1, dict.fromkeys("abcd", 9.9))
    # One that did not report cannot be kept; the others move up.
    assert all("a" not in kept("random", 1, "abcd", 2, n, {"b": 1, "c": 1, "d": 1}) for n in range(1, 20))


def test_the_fingerprint_is_of_what_decides_the_results(inventory: Inventory) -> None:
    plan = plan_of("candidates = [2]\nchosen = [1]")
    other = plan.model_copy(update={"keep": "fastest"})
    assert fingerprint(plan, inventory) != fingerprint(other, inventory)


# The server.


def probe(duration_ns: int = 10**9) -> Report:
    return Report(ProbeDone(seq=1, job_id="job", loss=1.0, duration_ns=duration_ns, samples=1))


def serve(candidates: str, k: int | None, *, timeout_s: float = 10.0) -> RoundServer:
    choose = (
        None
        if k is None
        else lambda reports: frozenset(sorted(reports, key=lambda device: reports[device].duration_s)[:k])
    )
    return RoundServer(
        candidates, choose, start_timeout_s=timeout_s, report_timeout_s=timeout_s, needs_all=True
    )


def test_the_server_decides_when_all_have_reported() -> None:
    server = serve("abc", 1)
    early: list[bool] = []
    first = threading.Thread(target=lambda: early.append(server.decide("a", probe(3), Ending())))
    first.start()
    time.sleep(0.3)
    assert not early
    assert server.chosen is None
    said = in_threads({n: lambda n=n: server.decide(n, probe(ord(n)), Ending()) for n in "bc"})
    first.join(10)
    assert (early, said) == ([True], {"b": False, "c": False})
    assert server.reports["b"].duration_s == pytest.approx(98e-9)
    assert not server.late


def test_a_vanilla_candidate_goes_on_at_once() -> None:
    server = serve("ab", None)
    assert server.decide("a", probe(), Ending())
    assert {device: report.duration_s for device, report in server.reports.items()} == {"a": 1.0}


def test_the_server_does_not_wait_for_the_lost_or_for_the_late() -> None:
    server = serve("abc", 2)
    server.lost("c")
    said = in_threads({n: lambda n=n: server.decide(n, probe(), Ending()) for n in "ab"})
    assert said == {"a": True, "b": True}
    late = serve("ab", 1, timeout_s=0.1)
    assert late.decide("a", probe(), Ending())
    assert late.late == {"b"}
    assert not late.decide("b", probe(), Ending()), "who comes after the decision stops"


def test_a_waiting_candidate_can_be_ended() -> None:
    server, ending = serve("ab", 1), Ending()
    threading.Timer(0.1, ending.request, [Stopped("enough")]).start()
    assert not server.decide("a", probe(), ending)


def test_all_begin_together_or_nobody_does() -> None:
    server = serve("abc", 1)
    assert in_threads({n: lambda n=n: server.wait_for_all(n, Ending()) for n in "abc"}) == dict.fromkeys(
        "abc"
    )
    broken = serve("abc", 1)
    threading.Timer(0.1, broken.lost, ["c"]).start()
    said = in_threads({n: lambda n=n: broken.wait_for_all(n, Ending()) for n in "ab"})
    assert all(isinstance(error, CalledOff) for error in said.values())
    assert "c not ready" in str(said["a"])
    with pytest.raises(CalledOff):
        serve("ab", 1, timeout_s=0.1).wait_for_all("a", Ending())


def test_one_that_is_ready_after_the_others_gave_up_does_not_begin_alone() -> None:
    server = serve("ab", 1, timeout_s=0.1)
    with pytest.raises(CalledOff, match="b not ready"):
        server.wait_for_all("a", Ending())
    with pytest.raises(CalledOff, match="did not begin"):
        server.wait_for_all("b", Ending())


# The statistics.


def energies(values: list[float], gain: float = 0.0, clock_j: float = 0.0, meter: str = "m") -> PairedSeries:
    return PairedSeries.of_energies([RoundEnergy(v, {meter: np.array([gain * v])}, clock_j) for v in values])


def test_an_interval_is_students_over_paired_differences() -> None:
    """Differences 1, 2, 3: mean 2, sd 1, t(2) = 4.3027."""
    found = saved(energies([11.0, 22.0, 33.0]), energies([10.0, 20.0, 30.0]))
    assert (found.mean, found.n, found.sd) == (2.0, 3, pytest.approx(1.0))
    assert found.half_width_95 == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)


def test_rounds_of_three_days_are_averaged_by_day() -> None:
    """Saved: 2, 2, 2 on the first day, 4, 4 on the second, 9 on the third; the variance of 2, 4, 9 is 13."""
    days = (1, 1, 1, 2, 2, 3)
    vanilla = PairedSeries.of_times([12.0, 12.0, 12.0, 14.0, 14.0, 19.0], days)
    probing = PairedSeries.of_times([10.0] * 6, days)
    found = saved(vanilla, probing)
    assert (found.mean, found.n, found.sessions, found.sd) == (5.0, 6, 3, 0.0)
    assert found.half_width_95 == pytest.approx(4.302653 * np.sqrt(13 / 3), rel=1e-6)
    share = saved_share(vanilla, probing)
    assert share.mean == pytest.approx(1 - 10 / 15)
    assert (share.n, share.sessions, share.session_sd_from) == (6, 3, "measured")
    one_day = saved(PairedSeries.of_times(vanilla.values.tolist()), PairedSeries.of_times([10.0] * 6))
    assert one_day.sessions == 1
    assert one_day.half_width_95 < found.half_width_95


def test_one_repetition_has_no_interval() -> None:
    found = saved_share(energies([10.0], gain=0.1), energies([8.0], gain=0.1))
    assert (found.mean, found.n, found.sd, found.half_width_95) == (pytest.approx(0.2), 1, None, None)


def test_a_gain_error_moves_a_difference_but_not_a_share() -> None:
    vanilla, probing = energies([10.0, 10.0], gain=0.05), energies([8.0, 8.0], gain=0.05)
    assert vanilla.quantity().half_width_95 == pytest.approx(0.5)
    assert saved(vanilla, probing).half_width_95 == pytest.approx(0.05 * 2)
    assert saved_share(vanilla, probing).half_width_95 == pytest.approx(0.0, abs=1e-12)
    other = energies([8.0, 8.0], gain=0.05, meter="another")
    assert saved(vanilla, other).half_width_95 == pytest.approx(np.hypot(0.5, 0.4))


def test_clock_errors_of_two_rounds_add_in_squares() -> None:
    found = saved(energies([10.0, 10.0], clock_j=0.03), energies([8.0, 8.0], clock_j=0.04))
    assert found.half_width_95 == pytest.approx(1.959964 * 0.05, rel=1e-6)


def test_nothing_has_no_share() -> None:
    with pytest.raises(DataQualityError, match="nothing to save from"):
        saved_share(energies([-1.0, 1.0]), energies([1.0, 1.0]))


def test_the_intervals_cover(record_property: Callable[[str, object], None]) -> None:
    """Rounds drawn with a scatter common to both ways, one of each, and an instrument's gain."""
    rng = np.random.default_rng(5)
    trials, hits = 2000, np.zeros(2)
    for _ in range(trials):
        gain = 0.03 / 1.96 * rng.normal()
        common = rng.normal(0, 2.0, 4)
        vanilla = 50 + common + rng.normal(0, 0.5, 4)
        probing = 0.7 * (50 + common) + rng.normal(0, 0.5, 4)
        series = [energies([*(1 + gain) * values], gain=0.03) for values in (vanilla, probing)]
        for i, (found, truth) in enumerate(((saved(*series), 15.0), (saved_share(*series), 0.3))):
            hits[i] += abs(found.mean - truth) <= found.half_width_95
    record_property("coverage of joules and shares", (hits / trials).tolist())
    assert (hits / trials > 0.93).all()
    # Where only the scatter counts, as for shares, Student's interval covers what it says.
    assert hits[1] / trials < 0.97


# Rounds from captures with a known power.


def part(device: str, seconds: dict[str, float], joules: dict[str, float]) -> MeasuredPart:
    readings = {
        name: PhaseReading(seconds.get(name, 0.0), joules.get(name, 0.0), np.zeros(1), 0.0)
        for name in ("download", "probe", "wait", "train", "upload")
    }
    return MeasuredPart(device, f"meter of {device}", readings, 0, 0, 0, ())


def test_parts_are_counted_as_the_emulator_counts_them() -> None:
    rng = np.random.default_rng(3)
    record = ProbingRoundRecord(
        number=1, repetition=1, candidates=("a", "b", "c"), k=2, chosen=("a", "c"), reports_s={},
        jobs=("jobs/a", "jobs/b", "jobs/c"), captures_sha256=("0" * 64,) * 3,
    )  # fmt: skip
    parts = []
    for device in record.candidates:
        names = ["download", "probe", "wait", *(["train", "upload"] if device != "b" else [])]
        parts.append(part(device, dict(zip(names, rng.random(5))), dict(zip(names, rng.random(5)))))  # noqa: B905
    measured = MeasuredRound(record, tuple(parts))
    chosen = measured.mask(record.chosen)
    costs = round_costs(measured.client_cost(), chosen, 0.0, probed=True)
    for accounting in Accounting:
        assert measured.energy(probing_weights(accounting, chosen)).value_j == pytest.approx(
            costs[accounting].energy_j
        )
        if accounting is not Accounting.HONEST:
            assert measured.probing_s()[accounting] == pytest.approx(costs[accounting].time_s)
    whole = measured.energy(vanilla_weights(chosen)).value_j
    assert whole == pytest.approx(costs[Accounting.HONEST].energy_j), "the stopped one has no upload"


def test_a_part_is_read_from_its_capture(tmp_path: Path) -> None:
    """Download 0.4 s at 1.5 W, three epochs of 1 s at 3 W, waiting 0.5 s at 1 W, upload 0.3 s at 2 W."""
    capture = write(tmp_path / "one", one_round([1.0, 1.0, 1.0]), gain_rel=0.02)
    gross, net = read_part(capture, "gross"), read_part(capture, "net")
    seconds = {name: reading.duration_s for name, reading in gross.readings.items()}
    assert seconds == pytest.approx({"download": 0.4, "probe": 1, "wait": 0.5, "train": 2, "upload": 0.3})
    joules = {name: reading.energy_j for name, reading in gross.readings.items()}
    wanted = {"download": 0.6, "probe": 3.0, "wait": 0.5, "train": 6.0, "upload": 0.6}
    assert joules == pytest.approx(wanted, rel=0.01)
    assert gross.readings["train"].limits_j[0] == pytest.approx(0.02 * 6.0, rel=0.01)
    assert net.readings["train"].energy_j == pytest.approx(6.0 - 2 * 0.8, rel=0.01)
    assert net.readings["train"].limits_j[0] == pytest.approx(0.02 * (6.0 - 1.6), rel=0.01)
    assert gross.problems == ()
    bare = write(tmp_path / "two", one_round([1.0, 1.0])[1:-1])
    with pytest.raises(DataQualityError, match="no idle power"):
        read_part(bare, "net")


def test_the_formula_is_asked_about_the_rounds_that_were_run(tmp_path: Path) -> None:
    profiles = []
    for name, seconds in (("fast", 1.0), ("slow", 2.0)):
        device = DeviceFacts(name=name, transport="ssh")
        captures = [
            write(tmp_path / f"{name}{i}", one_round([seconds] * 5), device=device, gain_rel=0.02)
            for i in range(2)
        ]
        profiles.append(build_profile(captures))
    expected = Expectation(profiles, 5, "gross", seed=1)
    both = ("fast", "slow")
    cell = expected.of([RunRound(both, ("fast",)), RunRound(both, ("slow",))])
    honest = cell.savings[Accounting.HONEST]
    assert cell.vanilla_s.mean == pytest.approx(0.4 + 10 + 0.3, rel=1e-3)
    # The fast one needs 4 s after both have probed, the slow one 8 s.
    assert honest.time_s.mean == pytest.approx(0.4 + 2 + (4 + 8) / 2 + 0.3, rel=1e-3)
    assert honest.energy_j.mean == pytest.approx(1.2 + 9 + (12 + 24) / 2 + 0.6, rel=5e-3)
    assert honest.energy_j.low < honest.energy_j.mean < honest.energy_j.high
    assert expected.origin.value == "emulated"
    captures = [open_capture(tmp_path / "fast0")]
    assert fitting_profiles(profiles, captures) == profiles[:1]
    with pytest.raises(ConfigError, match="no profiles of fast"):
        fitting_profiles(profiles[1:], captures)
    with pytest.raises(ConfigError, match="2 profiles of fast"):
        fitting_profiles([profiles[0]] * 2, captures)
    with pytest.raises(ConfigError, match="is of 1 samples, the rounds of 600"):
        fitting_profiles([profiles[0].model_copy(update={"samples": 1})], captures)


# The bench: real agents over OpenSSH, emulated meters that see what they use.

BASE = "candidates = [3]\nchosen = [1]\nrepetitions = 2\norder = 'listed'\n"
FAST = """
[timing]
idle_s = 0.5
settle_s = 0
deadline_s = 60
[sync]
order = 4
bit_ns = 20_000_000
[retry]
attempts = 12
wait_s = 0.1
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Iterator[LocalBench]:
    kinds = dict.fromkeys(("alpha", "beta", "gamma"), "monsoon-lvpm")
    with local_bench(tmp_path_factory.mktemp("bench"), sshd, kinds) as running:
        yield running


def files_of(
    bench: LocalBench, text: str, sections: str = FAST, inventory: Path | None = None
) -> ProbingFiles:
    path = bench.folder / "probing.toml"
    path.write_text(SMALL + "local_epochs = 3\nsamples = 60_000\n" + text + sections)
    return read_probing_files(path, inventory or bench.inventory)


@pytest.fixture(scope="module")
def done(bench: LocalBench) -> ProbingOutcome:
    """Two repetitions of three candidates, of which one goes on.

    The run is stopped in its second round and taken up again; then beta is cut in that round.
    """
    files = files_of(bench, BASE)
    root, stop, cut = bench.folder / "runs", threading.Event(), threading.Event()

    def stopping(_event: str, what: str, facts: dict[str, object]) -> None:
        if "alpha_probing" in what and facts.get("stage") == "connect":
            stop.set()

    def cutting(_event: str, what: str, facts: dict[str, object]) -> None:
        if "beta_probing" in what and facts.get("stage") == "round" and not cut.is_set():
            cut.set()
            threading.Timer(0.5, bench.cut, ["beta"]).start()
        raise BrokenPipeError("nobody reads the progress any more")

    with pytest.raises(KeyboardInterrupt):
        run_probing(files, root, stop=stop, listener=stopping)
    (run,) = RunStore(root).list()
    assert run.state == "interrupted"
    return run_probing(files, root, resume=run.path, listener=cutting, outputs=OUTPUTS)


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command line in this process and give what ``--json`` says."""

    def run(*arguments: str, code: int = 0) -> Any:
        capfd.readouterr()
        returned = joulefleet(["probing", "validate", *arguments, "--json"])
        out, err = capfd.readouterr()
        assert returned == code, out + err
        return json.loads(out)

    return run


def test_every_round_is_run_both_ways(done: ProbingOutcome) -> None:
    assert len(done.finished) == 4
    assert not done.failed
    assert RunStore(done.path.parent).list()[0].state == "complete"
    records = read_probing_rounds(done.path)
    assert sorted((r.repetition, r.k or 0) for r in records) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    for record in records:
        assert set(record.reports_s) == set(record.candidates) == {"alpha", "beta", "gamma"}
        assert len(record.chosen) == (record.k or 3)
        begun = []
        for device, job in zip(record.candidates, record.jobs, strict=True):
            capture = open_capture(done.path / "jobs" / job)
            phases = capture.phases()
            epochs = [p.epoch for p in phases if p.epoch]
            assert epochs == ([1, 2, 3] if device in record.chosen else [1])
            begun.append((phases[0].start_ns, phases[-1].end_ns))
        assert max(start for start, _ in begun) < min(end for _, end in begun), "at the same time"


def test_the_page_and_the_epochs_stand_beside_the_evidence(done: ProbingOutcome) -> None:
    assert "topping after the first epoch" in (done.path / REPORT_FILE).read_text()
    for record in read_probing_rounds(done.path):
        assert all((done.path / "jobs" / job / EPOCHS_FILE).exists() for job in record.jobs)


def test_candidates_wait_for_the_slowest(done: ProbingOutcome) -> None:
    for record in (r for r in read_probing_rounds(done.path) if r.k is not None):
        captures = [open_capture(done.path / "jobs" / job) for job in record.jobs]
        waits = [next(p for p in c.phases() if p.phase.value == "wait") for c in captures]
        probed_ns = max(wait.start_ns for wait in waits)
        clocks_ns = 1e9 * (0.01 + 6 * max(c.record.clock.sync_uncertainty_s for c in captures))
        assert all(wait.end_ns > probed_ns - clocks_ns for wait in waits)


def test_a_run_is_computed_again_from_its_captures(done: ProbingOutcome, ask: Callable[..., Any]) -> None:
    said = ask(str(done.path))
    assert (said["origin"], said["predicted_origin"]) == ("emulated", "emulated")
    assert (said["planned"], said["failed"], said["keep"]) == (4, {}, "random")
    (cell,) = said["cells"]
    assert (cell["candidates"], cell["chosen"], cell["repetitions"]) == (3, 1, 2)
    savings = cell["savings"]
    for saving in savings.values():
        assert saving["energy_saved"]["half_width_95"] > 0
        assert saving["time_saved"]["n"] == 2
        assert saving["saved_j"]["mean"] == pytest.approx(
            cell["vanilla_j"]["mean"] - saving["energy_j"]["mean"]
        )
    # Two of three candidates leave out two of three epochs: 4/9 of the work, as little noise as there is.
    assert savings["honest"]["energy_saved"]["mean"] > 0.1
    assert (
        savings["honest"]["energy_j"]["mean"]
        > savings["selected_only"]["energy_j"]["mean"]
        > savings["free"]["energy_j"]["mean"]
    )
    assert cell["predicted"]["savings"]["honest"]["energy_saved"]["mean"] > 0.1
    for accounting, played in cell["emulated"]["savings"].items():
        formula = cell["predicted"]["savings"][accounting]
        assert played["energy_saved"] == pytest.approx(formula["energy_saved"]["mean"], abs=1e-6)
        assert played["time_s"] == pytest.approx(formula["time_s"]["mean"], rel=1e-6)
    assert "every candidate" in said["counted"]["honest"]
    assert said["paper"]["energy_saved"] == 0.252
    assert all(line["elapsed_s"] > 0 for line in said["rounds"])
    again = validate_run(done.path, energy="gross")
    assert again.cells[0].vanilla_j.mean > cell["vanilla_j"]["mean"], "idle power is in gross energy"


def test_the_table_says_where_its_numbers_come_from(
    done: ProbingOutcome, capsys: pytest.CaptureFixture[str]
) -> None:
    assert joulefleet(["probing", "validate", str(done.path)]) == 0
    text = capsys.readouterr().out
    for expected in (
        "on the bench [emulated]",
        "predicted [emulated]",
        "emulator [emulated]: the same rounds and profiles",
        "random choice",
        "37.4 s and 8.2 J",
        "in no other number",
        "4 of 4 rounds finished",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chosen", "2"], "--chosen does not apply"),
        (["--dry-run"], "--dry-run does not apply"),
        (["--profiles", "nothing"], "no run matches"),
    ],
)
def test_options_that_do_not_fit(
    done: ProbingOutcome, ask: Callable[..., Any], arguments: list[str], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        ask(str(done.path), *arguments)


def test_a_dry_run_touches_nothing(bench: LocalBench, ask: Callable[..., Any]) -> None:
    files_of(bench, "candidates = [2, 3]\nchosen = [1, 2]\nrepetitions = 1\n")
    arguments = ("--inventory", str(bench.inventory), "--root", str(bench.folder / "dry"))
    said = ask(str(bench.folder / "probing.toml"), "--dry-run", *arguments)
    assert len(said["rounds"]) == 6
    assert not (bench.folder / "dry").exists()
    error = ask(str(bench.folder / "probing.toml"), "--candidates", "3", "--dry-run", *arguments, code=2)[
        "error"
    ]
    assert "--candidates does not apply" in error["message"]


def test_a_changed_capture_is_refused(done: ProbingOutcome, tmp_path: Path) -> None:
    copy = tmp_path / done.path.name
    shutil.copytree(done.path, copy)
    job = read_probing_rounds(copy)[0].jobs[0]
    markers = copy / "jobs" / job / "markers.jsonl"
    markers.write_text("".join(markers.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataQualityError, match="changed since the round was measured"):
        validate_run(copy)


def test_a_resumed_run_keeps_what_was_finished(done: ProbingOutcome) -> None:
    events = list(read_journal(done.path / "journal.jsonl"))
    assert [e["round"] for e in events if e["event"] == "round_finished"] == sorted(done.finished)
    begun = [e["round"] for e in events if e["event"] == "round"]
    assert begun.count("0001_vanilla-m3_rep1") == begun.index("0002_probing-m3-k1_rep1")
    stopped = [e["job"] for e in events if "Stopped" in e.get("error", "")]
    assert len(stopped) == 3, "every part was ended"


def test_a_lost_device_fails_its_round_and_the_others_finish_theirs(done: ProbingOutcome) -> None:
    why = [e["error"] for e in read_journal(done.path / "journal.jsonl") if e["event"] == "round_failed"]
    assert any("beta: " in error for error in why)
    aside = {p.name: read_record(p / "attempt.json", AttemptRecord) for p in (done.path / "failed").iterdir()}
    lost = [r for r in aside.values() if r.error_type == "DeviceUnreachable" and "beta_probing" in r.job]
    assert "beta_probing-m3-k1_rep1" in lost[0].job
    # The others went on to their end. What they did is evidence, but of no round.
    number = lost[0].attempt
    others = [aside[f"{job}_probing-m3-k1_rep1-attempt{number}"] for job in ("0004_alpha", "0006_gamma")]
    assert {record.stage for record in others} <= {"verify", "release"}
    assert validate_run(done.path).failed_attempts == len(why)


def test_a_device_that_is_gone_fails_its_rounds(bench: LocalBench, ask: Callable[..., Any]) -> None:
    """Alpha is ready and called off; the second round does not even begin."""
    inventory = bench.folder / "gone.toml"
    port = bench.servers["beta"].port
    inventory.write_text(bench.inventory.read_text().replace(f"port = {port}", "port = 1"))
    shutil.copy(bench.inventory.with_suffix(".known_hosts"), inventory.with_suffix(".known_hosts"))
    text = "devices = ['alpha', 'beta']\ncandidates = [2]\nchosen = [1]\nrepetitions = 1\norder = 'listed'\n"
    files_of(bench, text, FAST.replace("attempts = 12", "attempts = 1"), inventory)
    root = bench.folder / "gone"
    said = ask(str(bench.folder / "probing.toml"), "--inventory", str(inventory), "--root", str(root), code=6)
    assert "no vanilla round with its probing round is finished" in said["error"]["message"]
    (run,) = RunStore(root).list()
    assert run.state == "interrupted", "it can be resumed"
    gave_up = [e for e in read_journal(run.path / "journal.jsonl") if e["event"] == "round_gave_up"]
    assert [e["round"][:4] for e in gave_up] == ["0001", "0002"]
    assert "beta" in gave_up[0]["error"]
    assert "device beta is out" in gave_up[1]["error"]
    aside = [read_record(p / "attempt.json", AttemptRecord) for p in (run.path / "failed").iterdir()]
    assert {r.error_type for r in aside if "alpha" in r.job} <= {"CalledOff"}


def test_one_repetition_is_said_to_have_no_interval(done: ProbingOutcome, tmp_path: Path) -> None:
    copy = tmp_path / done.path.name
    shutil.copytree(done.path, copy)
    for record in (copy / "rounds").glob("*_rep2.json"):
        record.unlink()
    found = validate_run(copy)
    (cell,) = found.cells
    assert (cell.repetitions, cell.vanilla_j.half_width_95) == (1, None)
    assert cell.savings[Accounting.HONEST].energy_saved.half_width_95 is None
    assert "M = 3, K = 1: one repetition, so there is no interval" in found.notes
    assert [name[:4] for name in found.failed] == ["0003", "0004"]


def test_a_killed_round_is_put_aside_and_begun_again(
    bench: LocalBench, done: ProbingOutcome, tmp_path: Path
) -> None:
    """The kill came when all captures were whole and the round's record was not written yet."""
    copy = tmp_path / done.path.name
    shutil.copytree(done.path, copy)
    (copy / "rounds" / "0004_probing-m3-k1_rep2.json").unlink()
    record = read_record(copy / "run.json", RunRecord)
    write_record(copy / "run.json", record.model_copy(update={"status": RunStatus.RUNNING}), replace=True)
    before = {path.name for path in (copy / "failed").iterdir()}
    stop = threading.Event()
    stop.set()
    files = files_of(bench, BASE)
    with pytest.raises(KeyboardInterrupt):
        run_probing(files, tmp_path, resume=copy, stop=stop)
    new = {path for path in (copy / "failed").iterdir() if path.name not in before}
    killed = [read_record(path / "attempt.json", AttemptRecord) for path in sorted(new)]
    assert [r.job.split("_")[1] for r in killed if r.error_type == "Killed"] == ["alpha", "beta", "gamma"]
    assert len(read_probing_rounds(copy)) == 3
    with pytest.raises(ConfigError, match="another configuration"):
        run_probing(files_of(bench, BASE + "seed = 5\n"), tmp_path, resume=copy)


def test_predictions_from_the_profiles_of_a_run(
    done: ProbingOutcome, tmp_path: Path, ask: Callable[..., Any]
) -> None:
    copy = tmp_path / done.path.name
    shutil.copytree(done.path, copy)
    assert len(build_run_profiles(copy).profiles) == 3
    said = ask(str(done.path), "--profiles", str(copy))
    assert said["profiles_from"] == str(copy)
    assert said["cells"][0]["predicted"]["savings"]["honest"]["energy_saved"]["mean"] > 0.1
    (copy / "profiles").rename(tmp_path / "away")
    assert "no profiles of alpha" in ask(str(done.path), "--profiles", str(copy), code=3)["error"]["message"]
