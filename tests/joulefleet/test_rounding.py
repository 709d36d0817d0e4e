import math

import pytest

from joulefleet.rounding import rounded


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (22043.7, "22,040"),
        (-1234567.0, "-1,235,000"),
        (999.96, "1,000"),
        (98.4712, "98.47"),
        (3.0, "3"),
        (0.0001234567, "0.0001235"),
        (1.2e-9, "1.2e-09"),
        (0.0, "0"),
        (5.4321e12, "5.432e+12"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_a_number_for_people(value: float, text: str) -> None:
    assert rounded(value) == text


def test_fewer_digits() -> None:
    assert rounded(22043.7, 2) == "22,000"
