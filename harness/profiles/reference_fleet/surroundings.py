"""What is around the training: radio, sleep, charging."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.profiles.reference_fleet.sources import rounded
from power.reference import Radio, RadioLink

NETWORKS = {"lte": "LTE", "nr": "NSALow"}
CHARGING_BELOW = 0.8
"""Above, chargers slow down."""


def radios(folder: Path) -> dict[str, Radio]:
    """Power against rate by least squares, for each network and direction."""
    import pandas as pd

    table = pd.read_csv(folder / "sigcomm21_MN-Transfer_combined.csv.gz")
    found = {}
    for name, network in NETWORKS.items():
        rows = table[table["network type"] == network]
        links = {}
        for direction in ("downlink", "uplink"):
            part = rows[rows["direction"] == direction]
            slope, base = np.polyfit(part["throughput"], part["avg_power"], 1)  # mW against Mbit/s
            off = part["avg_power"] - base - slope * part["throughput"]
            links[direction] = RadioLink(
                base_w=rounded(base / 1000),
                slope_j_per_bit=rounded(slope * 1e-9),
                sd_w=rounded(float(off.std(ddof=2)) / 1000),
                rate_bit_s=rounded(float(part["throughput"].median()) * 1e6),
            )
        found[name] = Radio(download=links["downlink"], upload=links["uplink"])
    return found


def asleep_w(folder: Path) -> float:
    """Lower quartile of a phone's power on battery."""
    import pandas as pd

    table = pd.read_csv(folder / "iphone16promax_battery_20s.csv.gz")
    on_battery = table[(table["ExternalConnected"] == 0) & (table["InstantAmperage"] < 0)]
    watts = -on_battery["InstantAmperage"] * on_battery["Voltage"] * 1e-6  # mA x mV
    return rounded(float(watts.quantile(0.25)))


def charge_share_per_h(folder: Path) -> float:
    """Share of the battery charged per hour: median over users of their mean."""
    import pandas as pd

    table = pd.read_csv(folder / "extrasensory_phone_state.csv.gz").sort_values(["user", "timestamp"])
    following = table.groupby("user")[["timestamp", "battery_level", "battery_state"]].shift(-1)
    hours = (following["timestamp"] - table["timestamp"]) / 3600
    steady = (table["battery_state"] == "charging") & (following["battery_state"] == "charging")
    usable = steady & (hours < 5 / 60) & (table["battery_level"] < CHARGING_BELOW)
    gained = (following["battery_level"] - table["battery_level"])[usable].groupby(table["user"]).sum()
    spent = hours[usable].groupby(table["user"]).sum()
    return rounded(float((gained / spent)[spent > 1].median()))
