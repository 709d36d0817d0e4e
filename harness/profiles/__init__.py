"""Device profiles: built from captures, listed, exchanged, scaled to what was not measured."""

from harness.profiles.build import build_profile, build_profiles
from harness.profiles.epochs import EpochRow, epoch_rows

__all__ = ["EpochRow", "build_profile", "build_profiles", "epoch_rows"]
