"""Whether a profile fits the work of rounds, with profiles and works that are unlike each other."""

from typing import Any

import pytest

from harness.profiles.cells import CellKey
from harness.profiles.fit import RoundWork, fitting_profile, reservations
from joulefleet.errors import ConfigError
from power.profile import DeviceProfile
from power.reference import reference_fleet

KEY = CellKey("one", "mnist-lenet5", "mnist", "torch")


def profile(device: str = "one", **changes: Any) -> DeviceProfile:
    facts = {
        "device": device, "model": "lenet5", "dataset": "mnist", "backend": "torch", "samples": 600,
        "batch_size": 32, "threads": 2, "synthetic_data": False, "warmup_epochs": 0, "notes": (),
    }  # fmt: skip
    return reference_fleet()[0].model_copy(update={**facts, **changes})


def work(**changes: Any) -> RoundWork:
    facts = {"key": KEY, "samples": 600, "batch_size": 32, "threads": 2, "synthetic_data": False}
    return RoundWork(**{**facts, **changes})


def test_the_one_of_the_same_work_among_others() -> None:
    others = [profile("two"), *(profile(**{name: "x"}) for name in ("model", "dataset", "backend"))]
    mine = profile()
    assert fitting_profile([*others, mine], work()) is mine
    with pytest.raises(ConfigError, match=r"^no profiles of one/lenet5/mnist/torch") as caught:
        fitting_profile(others, work())
    listed = ", ".join(one.label for one in others[1:])
    assert caught.value.hint == f"one is needed; of this device there is {listed}"
    with pytest.raises(ConfigError, match=r"^2 profiles of"):
        fitting_profile([mine, mine], work())
    with pytest.raises(ConfigError) as caught:
        fitting_profile(others[:1], work())
    assert caught.value.hint.endswith("of this device there is nothing")


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ({"batch_size": 32}, {"batch_size": 16}, "batch_size = 32, the rounds with 16"),
        ({"threads": 1}, {"threads": 4}, "threads = 1, the rounds with 4"),
        ({"threads": 1}, {"threads": 0}, "threads = 1, the rounds with 0 (0: as many as the backend likes)"),
        ({"threads": 0}, {"threads": 3}, "threads = 0, the rounds with 3 (0: as many as the backend likes)"),
        ({"batch_size": 0}, {"batch_size": 1}, "batch_size = 0, the rounds with 1"),
    ],
)
def test_other_batches_or_threads_are_refused(here: dict[str, Any], there: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fitting_profile([profile(**here)], work(**there))
    assert caught.value.message == f"the profile of one was measured with {said}"


def test_threads_that_are_not_known_fit_any() -> None:
    for mine, theirs in ((profile(threads=None), work()), (profile(), work(threads=None))):
        assert fitting_profile([mine], theirs) is mine


def test_nothing_is_reserved_where_the_work_is_the_same() -> None:
    assert reservations(profile(), work()) == []
    assert reservations(profile(synthetic_data=True), work(synthetic_data=True)) == []
    assert reservations(profile(synthetic_data=True), work()) == []


def test_every_reservation_by_itself() -> None:
    assert reservations(profile(notes=("cold", "old")), work()) == [
        "profile of one: cold", "profile of one: old",
    ]  # fmt: skip
    (warm,) = reservations(profile(warmup_epochs=1), work())
    assert warm.startswith("one: profiled after 1 warm-up epochs, which rounds do not have")
    (real,) = reservations(profile(), work(synthetic_data=True))
    assert real.startswith("one: profiled on real samples, the rounds have random ones")
    unknown = profile(threads=None, synthetic_data=None, warmup_epochs=None)
    assert reservations(unknown, work(synthetic_data=True)) == [
        "one: whether threads, synthetic_data, warmup_epochs are as in the rounds is not in its profile"
    ]


@pytest.mark.parametrize(
    ("profiled", "rounds", "steps"),
    [
        (640, 320, ""),  # 20 and 10 steps of 32
        (600, 300, ", by steps it would be +5.3%"),  # 19 and 10 steps: 10 / 9.5
        (33, 64, ", by steps it would be -48.4%"),  # two steps each: 33 / 64
    ],
)
def test_another_number_of_samples_is_told_with_what_steps_would_say(
    profiled: int, rounds: int, steps: str
) -> None:
    (note,) = reservations(profile(samples=profiled), work(samples=rounds))
    said = f"one: profiled with {profiled} samples, the rounds have {rounds}; predicted in proportion"
    assert note == said + steps
