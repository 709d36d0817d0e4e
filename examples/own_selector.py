"""Your own selector in a few lines: of the probed candidates, those with the most loss per joule."""

import sys

import numpy as np

import emulator
from emulator import Family, Probe, Selector


class LossPerJoule(Selector):
    """A method that probes: candidates train one epoch and report, the best go on."""

    name = "loss_per_joule"
    family = Family.HEURISTIC
    probe = Probe.EPOCH
    needs = frozenset({"loss", "epoch_j"})  # what it reads of the server's view; all else is NaN

    def select(self, view, candidates, k, rng):
        """The k best; a selector draws only from the generator it is handed."""
        score = view.loss[candidates] / view.epoch_j[candidates]
        return candidates[np.argsort(-score, kind="stable")[:k]]


if __name__ == "__main__":
    result = emulator.run("quick", selector=LossPerJoule(), out=sys.argv[1] if sys.argv[1:] else "emulations")
    print(result.rounds[["round", "test_accuracy", "time_s_honest", "energy_j_honest", "reward"]])
