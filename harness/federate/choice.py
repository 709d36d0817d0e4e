"""The choice of a method that probes: reports become what the server knows, the selector says who goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from emulator.round import Chooser, Reported
from harness.federate.participant import FederatedParticipant
from harness.federate.registration import Registered
from harness.federate.setup import FederationSetup
from harness.rounds.server import Report
from joulefleet.errors import JoulefleetError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator import ServerView


class ProbeChoice:
    """Called once in a round, from a participant's thread, when the probes are in.

    Args:
        setup: Who and what takes part.
        chooser: Asks the selector.
        reported: What the server knows; the view shows it.
        registered: Stands in for an energy that the meter has not shown in time, nor in a round before.
        view: Of this round.
        participants: Of this round.

    Attributes:
        heard: Devices whose report was there when the choice was made.
    """

    def __init__(
        self,
        setup: FederationSetup,
        chooser: Chooser,
        reported: Reported,
        registered: Registered,
        view: ServerView,
        participants: Sequence[FederatedParticipant],
    ) -> None:
        self._setup = setup
        self._chooser = chooser
        self._reported = reported
        self._registered = registered
        self._view = view
        self._clients = {one.device: one.client for one in participants}
        self.heard: frozenset[str] = frozenset()

    def __call__(self, reports: Mapping[str, Report]) -> frozenset[str]:
        """Who goes on."""
        self.heard = frozenset(reports)
        finite = {self._clients[name]: report for name, report in reports.items() if report.is_finite}
        ids = np.array(sorted(finite), np.int64)
        self._reported.put(ids, self._columns([finite[i] for i in ids.tolist()], ids))
        chosen, epochs = self._chooser.choose(self._view, ids)
        if np.any(epochs != self._setup.rules.local_epochs):
            raise JoulefleetError(
                f"selector {self._setup.selector.name!r} asks for fewer epochs after the probe",
                hint="agents go on to the end or stop; this method cannot be run on a bench",
            )
        return frozenset(self._setup.devices[i] for i in chosen.tolist())

    def _columns(self, reports: list[Report], ids: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """What the server learns, by field of the view."""
        energy_j = np.array([report.epoch_j for report in reports])
        last_j = self._view.epoch_j[ids]
        known_j = np.where(np.isnan(last_j), self._registered.epoch_j[ids], last_j)
        return {
            "loss": np.array([report.loss for report in reports]),
            "loss_rms": np.array([report.loss_rms for report in reports]),
            "epoch_s": np.array([report.duration_s for report in reports]),
            "epoch_j": np.where(np.isnan(energy_j), known_j, energy_j),
        }
