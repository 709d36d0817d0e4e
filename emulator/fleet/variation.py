"""`Variation`: what no trace explains. Temperature, daemons and governors change a phone's speed by the hour.

A device's time and its power each have a factor ``exp(sd x(t))``. x is a first-order autoregression (AR(1))
in calendar time with standard normal values: it keeps its value for half a correlation time, each device's
steps at times of their own, and the correlation of values a time t apart falls as exp(-t / correlation time).

``x_n = sqrt(1 - r^2) (e_n + r e_(n-1) + r^2 e_(n-2) + ...)``, r = exp(-1/2), cut where r^j is below 1e-7.
Every e is a hash of (seed, device, n): x can be asked for at any time, in any order, of any devices, and the
cost grows with these alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import Ids
from emulator.fleet.hashed import normals, stream_key, uniforms
from emulator.fleet.state import FleetState

Array = NDArray[np.float64]

STEPS_PER_CORRELATION = 2
TERMS = 33
CHUNK = 1 << 14
"""Devices at a time: bounds the memory of a round with the whole fleet."""


@dataclass(frozen=True, slots=True, eq=False)
class Variation:
    """Factors on time and power, the same for a whole round.

    Attributes:
        fleet: Who has which profile.
        time_log_sd: Standard deviation of the logarithm of a device's time, one per profile.
        power_log_sd: Of its power, likewise.
        correlation_s: After so long values have lost all but 1/e of their correlation.
        seed: Of the run.
    """

    fleet: FleetState
    time_log_sd: Array
    power_log_sd: Array
    correlation_s: float
    seed: int

    def factors(self, t_ns: int, devices: Ids) -> tuple[Array, Array]:
        """On time and on power."""
        profile = self.fleet.profile[devices]
        return (
            np.exp(self.time_log_sd[profile] * self._states(t_ns, devices, "time")),
            np.exp(self.power_log_sd[profile] * self._states(t_ns, devices, "power")),
        )

    def _states(self, t_ns: int, devices: Ids, of: str) -> Array:
        parts = [
            autoregression(self.seed, of, t_ns, devices[i : i + CHUNK], self.correlation_s)
            for i in range(0, len(devices), CHUNK)
        ]
        return np.concatenate([np.empty(0), *parts])


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """What a server knows of a device's speed at registration is a measurement, with an error for good.

    Attributes:
        fleet: Who has which profile.
        kind_log_sd: Standard deviation of its logarithm that all devices of a profile share, one per profile:
            a benchmark tells how fast a kind of phone trains only so well.
        unit_log_sd: That of each device on its own, likewise.
        seed: Of the run.
    """

    fleet: FleetState
    kind_log_sd: Array
    unit_log_sd: Array
    seed: int

    def factors(self, devices: Ids) -> Array:
        """By which each time is wrong."""
        kinds = np.arange(len(self.kind_log_sd))
        kind = self.kind_log_sd * normals(stream_key(self.seed, "registration", "kind"), kinds)
        key = stream_key(self.seed, "registration", "unit")
        error = np.empty(len(devices))
        for i in range(0, len(devices), CHUNK):
            some = devices[i : i + CHUNK]
            profile = self.fleet.profile[some]
            error[i : i + CHUNK] = kind[profile] + self.unit_log_sd[profile] * normals(key, some)
        return np.exp(error)


def autoregression(seed: int, of: str, t_ns: int, devices: Ids, correlation_s: float) -> Array:
    """The standard normal x of each device at a time."""
    step_ns = correlation_s * 1e9 / STEPS_PER_CORRELATION
    offset = uniforms(stream_key(seed, "variation steps", of), devices)
    number = np.floor(t_ns / step_ns + offset).astype(np.int64)
    r = np.exp(-1.0 / STEPS_PER_CORRELATION)
    weight = np.sqrt(1.0 - r * r) * r ** np.arange(TERMS)
    back = number[:, None] - np.arange(TERMS)
    # Row by row, so that nobody's value depends on who else is asked about, as a matrix product's may.
    return np.asarray((normals(stream_key(seed, "variation", of), devices[:, None], back) * weight).sum(1))
