"""`Quantity`: a mean with its spreads, and the one function that makes it of repetitions in sessions.

A session is a stretch of measuring between two set-ups or days. Model: value = truth + session + repetition,
both deviations with their own spread. The best estimate is the mean of the session means, each counting once.

From three sessions on the interval is Student's over the session means. It needs neither spread: for sessions
with any repetitions it covers at least 95 % (Bakirov and Szekely 2005: Student's interval at this level stays
conservative for normal values of unequal variance), 95 to 97 % while no session has more than six times the
repetitions of another. Weighting sessions by their estimated spreads (REML, Hartung-Knapp) is narrower and
covers 85 to 93 % with few uneven sessions: see ADR-0034.

With one or two sessions nothing shows how days differ. The interval then is about repetitions within
sessions, and a spread between sessions enters only if somebody states one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from joulefleet.config import ClosedModel
from joulefleet.errors import DataQualityError
from joulefleet.interval import NORMAL_95, Interval, Scale, student_factor, student_half_width

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SESSIONS_FOR_SPREAD = 3
"""Fewer sessions do not show how sessions differ: Student's factor for two is 12.7."""


class Quantity(ClosedModel):
    """A mean with what is known about its spread. The unit is in the name of the field that holds it.

    Attributes:
        mean: Best estimate.
        n: Repetitions behind it; 0 for values that were not repeated here (literature, scaled).
        sd: Standard deviation between repetitions of the same session, or of two sessions of one value each;
            None if no session has two values otherwise.
        half_width_95: Half of the 95 % interval, systematic parts included; None if unknown.
        factor_95: For values predicted by a ratio: the truth lies between mean / factor and mean x factor
            with 95 % confidence; None if unknown.
        sessions: Sessions that the repetitions come from; None if not known.
        session_sd: Standard deviation between sessions, beyond that of repetitions; None if it is neither
            measured nor stated. Then the interval does not contain it.
        session_sd_from: Whether three or more sessions showed it, or somebody stated it.
        instrument_half_width_95: The part of the interval that is the instrument's own: the same in all that
            one unit measures, so that it cancels in ratios. None if it is not known apart.
    """

    LATER = frozenset({"sessions", "session_sd", "session_sd_from", "instrument_half_width_95"})

    mean: float
    n: int = Field(default=0, ge=0)
    sd: float | None = Field(default=None, ge=0)
    half_width_95: float | None = Field(default=None, ge=0)
    factor_95: float | None = Field(default=None, ge=1)
    sessions: int | None = Field(default=None, ge=1)
    session_sd: float | None = Field(default=None, ge=0)
    session_sd_from: Literal["measured", "stated"] | None = None
    instrument_half_width_95: float | None = Field(default=None, ge=0)

    @property
    def interval(self) -> Interval:
        """The mean and its interval alone, as it is stored; NaN where that is not known."""
        return self.on(Scale.LINEAR)

    def on(self, scale: Scale) -> Interval:
        """The same on the scale of what it is of: times, gross energies and powers are positive."""
        if self.factor_95 is not None:
            low, high = sorted((self.mean / self.factor_95, self.mean * self.factor_95))
            return Interval(self.mean, low, high)
        return Interval.measured(self.mean, self.half_width_95, scale)


class StatedSpread(ClosedModel):
    """How much sessions differ, as somebody states it where too few were measured.

    Attributes:
        relative_sd: Standard deviation between sessions over the mean.
        source: Where the number comes from.
    """

    relative_sd: float = Field(gt=0, lt=1)
    source: str = Field(min_length=1, max_length=500)


def quantity_from_sessions(
    values_by_session: Sequence[Sequence[float]],
    *,
    systematic_half_width: float | None = None,
    between_sessions: float | None = None,
) -> Quantity:
    """The mean of repeated values with its 95 % interval.

    Examples:
        >>> quantity_from_sessions([[2.40, 2.43, 2.41], [2.51, 2.49, 2.52], [2.45, 2.47, 2.44]])

    Args:
        values_by_session: One value per repetition, those of a session together. Empty sessions do not
            count.
        systematic_half_width: Half of the 95 % interval of what all values share (instrument, clock);
            added in squares.
        between_sessions: Standard deviation between sessions relative to the mean, as somebody states it.
            Used with fewer than three sessions; three or more show their own.

    Raises:
        DataQualityError: There is no value, or one is no finite number; the stated spread is not a share; the
            systematic part is negative or not finite.
    """
    import numpy as np  # not at the top: profiles are also listed, where nothing is computed

    sessions = _checked(values_by_session)
    if systematic_half_width is not None and not 0 <= systematic_half_width < math.inf:
        raise DataQualityError(f"systematic half width: {systematic_half_width:g} is no width")
    if between_sessions is not None and not 0 <= between_sessions < 1:
        raise DataQualityError(f"spread between sessions: {between_sessions:g} is not a share from 0 to 1")
    means = np.array([values.mean() for values in sessions])
    mean, count = float(means.mean()), len(sessions)
    sd = _repetition_sd(sessions)
    session_sd: float | None = None
    source: Literal["measured", "stated"] | None = None
    stated = 0.0
    if count >= SESSIONS_FOR_SPREAD:
        session_sd, source = _session_sd(sessions, means, sd), "measured"
    elif between_sessions is not None:
        session_sd, source = between_sessions * abs(mean), "stated"
        stated = NORMAL_95 * session_sd / math.sqrt(count)
    known = [part for part in (_scatter(sessions, means, sd), systematic_half_width) if part is not None]
    return Quantity(
        mean=mean,
        n=sum(len(values) for values in sessions),
        sd=sd,
        half_width_95=math.hypot(*known, stated) if known else None,
        sessions=count,
        session_sd=session_sd,
        session_sd_from=source,
    )


def _checked(values_by_session: Sequence[Sequence[float]]) -> list[NDArray[np.float64]]:
    """Sessions as arrays, empty ones left out. Beyond 1e150 a square no longer fits a float64."""
    import numpy as np

    try:
        arrays = [np.asarray(values) for values in values_by_session]
        if not all(values.ndim == 1 and (not values.size or values.dtype.kind in "iuf") for values in arrays):
            raise DataQualityError("values by session: a list of finite numbers for each session is needed")
        sessions = [values.astype(np.float64) for values in arrays if values.size]
    except (TypeError, ValueError, OverflowError) as problem:
        raise DataQualityError(f"values by session: {problem}") from problem
    if not sessions:
        raise DataQualityError("no value to compute a mean from")
    if not all((np.abs(values) < 1e150).all() for values in sessions):
        raise DataQualityError("a value is not a finite number below 1e150")
    return sessions


def _repetition_sd(sessions: Sequence[NDArray[np.float64]]) -> float | None:
    """Within sessions, pooled over them; of two sessions of one value each, that of the two values."""
    dof = sum(len(values) - 1 for values in sessions)
    if dof:
        return math.sqrt(math.fsum(((values - values.mean()) ** 2).sum() for values in sessions) / dof)
    if len(sessions) == SESSIONS_FOR_SPREAD - 1:
        return abs(float(sessions[1][0] - sessions[0][0])) / math.sqrt(2)
    return None


def _session_sd(
    sessions: Sequence[NDArray[np.float64]], means: NDArray[np.float64], sd: float | None
) -> float:
    """Beyond what repetitions explain; all of it where no session has two values."""
    explained = 0.0 if sd is None else sd**2 * math.fsum(1 / len(v) for v in sessions) / len(sessions)
    return math.sqrt(max(0.0, float(means.var(ddof=1)) - explained))


def _scatter(
    sessions: Sequence[NDArray[np.float64]], means: NDArray[np.float64], sd: float | None
) -> float | None:
    """Half of Student's interval of the mean: over session means from three on, else over repetitions."""
    count = len(sessions)
    # Rounded values may give session means that coincide: repetitions that scatter then speak instead.
    if count >= SESSIONS_FOR_SPREAD and (means.max() > means.min() or not sd):
        return student_half_width(means)
    if sd is None:
        return None
    dof = sum(len(values) - 1 for values in sessions) or 1
    return student_factor(dof) * sd * math.sqrt(math.fsum(1 / len(values) for values in sessions)) / count
