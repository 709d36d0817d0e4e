"""Throughput of mobile networks over time, from three published sets, recognised by their columns.

* UCC 5G: drives in Ireland at 1 Hz (Raca et al., MMSys 2020), ``trace, timestamp, network_mode, dl_kbps,
  ul_kbps``, or the published files with ``Timestamp, NetworkMode, DL_bitrate, UL_bitrate``. The stamps are
  wall-clock times: the zone must be given.
* HSDPA and FCC: what Pensieve was trained on (Mao et al., SIGCOMM 2017), ``trace, t_s, mbps`` or its files of
  two numbers a line. A rate is that of the stretch which *ends* at its time (Pensieve's simulator reads it
  so); hence it counts from the time before. The names tell the network: ``trace_..._http...`` are the FCC's
  fixed lines (Measuring Broadband America), the others rides in Norway on 3G (Riiser et al., MMSys 2013). A
  recording of another name is of an unknown network unless the setting ``network`` says which.
* SIGCOMM 2021: runs of one phone on LTE and 5G (Narayanan et al.), several in one file, with ``throughput,
  time_since_start, direction`` or ``Timestamp, downlink_Mbps, uplink_Mbps``. A time that goes back begins a
  new run. In a file whose rows are shuffled the runs cannot be separated: it is refused unless the setting
  ``runs=mixed`` makes it one trace, whose readings stay in the order of the file.

The times of the last two have no calendar. Power and signal columns are not kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from joulefleet.errors import DataQualityError
from joulefleet.printable import listed
from traces.model import InteractionTrace, NetworkKind
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.csv_table import CsvTable
from traces.readers.files.sources import files_of, is_text, lines, stem, text_chunks
from traces.readers.rows.assemble import assemble, source_facts
from traces.readers.rows.spool import UNKNOWN, RecordKind, UserSpool
from traces.readers.rows.timestamps import SHOWN_TWICE, WallClock, number_to_ns
from traces.readers.rows.value_codec import NETWORKS, within

_GENERATION = {
    "5g": NetworkKind.CELLULAR_5G,
    "mmwave": NetworkKind.CELLULAR_5G,
    "nsalow": NetworkKind.CELLULAR_5G,
    "lte": NetworkKind.CELLULAR_4G,
    "hspa+": NetworkKind.CELLULAR_3G,
    "hspa": NetworkKind.CELLULAR_3G,
    "hsdpa": NetworkKind.CELLULAR_3G,
    "hsupa": NetworkKind.CELLULAR_3G,
    "umts": NetworkKind.CELLULAR_3G,
    "edge": NetworkKind.CELLULAR_2G,
    "gprs": NetworkKind.CELLULAR_2G,
}
_PENSIEVE = {
    r"trace_\d+_http": NetworkKind.ETHERNET,
    r"norway_|(bus|car|ferry|metro|train|tram)\..*report": NetworkKind.CELLULAR_3G,
}
SHORTEST_RUN_ROWS = 4
"""Runs that are shorter on average are no runs: the rows are shuffled."""
_ENOUGH_RUNS = 50


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per drive or run."""
    options.check(settings=("runs", "network"))
    options.one_of("runs", "split", ("split", "mixed"))
    options.one_of("network", "unknown", tuple(NETWORKS))
    layouts: list[_Layout] = []
    layout_of: list[int] = []  # by the user's number: the first file that has it
    with UserSpool() as spool:
        for path in files_of(source, ""):
            layout = _layout(path, options, report, spool)
            report.note(SHOWN_TWICE, layout.ambiguous)
            layout_of += [len(layouts)] * (len(spool.users) - len(layout_of))
            layouts.append(layout)
        for number, (user, observed) in enumerate(spool.each()):
            layout = layouts[layout_of[number]]
            where_from = source_facts(options, report, layout.source, layout.licence, layout.relative_time)
            trace = assemble(user, observed, where_from, report, facts=layout.facts.get(user))
            if trace is not None:
                yield trace


def _layout(path: Path, options: ReaderOptions, report: ImportReport, spool: UserSpool) -> _Layout:
    """Read a whole file into the spool, by the layout that fits its columns."""
    if ".csv" not in path.suffixes:
        pairs = _Pairs(path, options, report, spool)
        pairs.read_lines(lines(text_chunks(path, options, report), path.name))
        return pairs
    table = CsvTable(path, options, report)
    for layout in (_Ucc, _UccPublished, _Hsdpa, _Transfers, _Walks):
        if set(layout.columns) <= set(table.header):
            chosen = layout(path, options, report, spool)
            chosen.read(table)
            return chosen
    raise DataQualityError(
        f"{path.name}: no known throughput set has the columns {listed(table.header)}",
        hint="the format csv reads any table: --map time=..., down_bps=..., up_bps=...",
    )


class _Layout:
    """One form of a set: its columns, and what a row of them means."""

    columns: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[str]
    licence: ClassVar[str]
    relative_time: ClassVar[bool] = True
    _take: Callable[..., None]
    """What the cells of the columns mean; raises `ValueError` for what cannot be used."""

    def __init__(self, path: Path, options: ReaderOptions, report: ImportReport, spool: UserSpool) -> None:
        self._path = path
        self._name = stem(path)
        self._options = options
        self._report = report
        self._spool = spool
        self.facts: dict[str, dict[str, str | float]] = {}

    @property
    def ambiguous(self) -> int:
        """How many stamps the clock showed twice."""
        return 0

    def read(self, table: CsvTable) -> None:
        """Take all rows."""
        at = table.positions({name: name for name in self.columns}, required=self.columns)
        places = [at[name] for name in self.columns]
        unused = [name for name in table.header if name not in self.columns]
        if unused:
            self._report.note(f"columns not kept: {', '.join(unused)}")
        table.each(lambda row: self._take(*(row[place] for place in places)))

    def _add(self, user: str, t_ns: int, down_bps: float, up_bps: float, network: str = "") -> None:
        kind = _GENERATION.get(network.lower())
        observed = self._spool.of(user)
        observed.add(RecordKind.RATE, t_ns, x=down_bps, y=up_bps)
        if network:
            observed.add(RecordKind.NETWORK, t_ns, code=UNKNOWN if kind is None else kind)
            if kind is None:
                self._report.note(f"network {network[:40]!r} is not known")


class _Ucc(_Layout):
    columns: ClassVar[tuple[str, ...]] = ("trace", "timestamp", "network_mode", "dl_kbps", "ul_kbps")
    source = "UCC 5G production data set (Raca et al., MMSys 2020)"
    licence = "GPL-3.0 (repository)"
    relative_time = False

    @cached_property
    def _clock(self) -> WallClock:
        zone = self._options.zone(f"{self._path.name} has wall-clock times")
        return WallClock(zone, "%Y.%m.%d_%H.%M", 16)

    @property
    def ambiguous(self) -> int:
        return self._clock.ambiguous

    def _take(self, trace: str, stamp: str, network: str, down: str, up: str, /) -> None:
        t_ns = self._clock.ns(stamp)
        self._add(trace, t_ns, _bps("downlink", down, 1e3), _bps("uplink", up, 1e3), network)


class _UccPublished(_Ucc):
    columns = ("Timestamp", "NetworkMode", "DL_bitrate", "UL_bitrate")

    def _take(self, *cells: str) -> None:
        super()._take(self._name, *cells)


class _Hsdpa(_Layout):
    columns = ("trace", "t_s", "mbps")
    source = "HSDPA and FCC traces of Pensieve (Mao et al., SIGCOMM 2017)"
    licence = "BSD-2-Clause (repository)"

    @cached_property
    def _last_ns(self) -> dict[str, int]:
        return {}

    def _take(self, trace: str, t_s: str, mbps: str) -> None:
        """Add a rate at the time before, where its stretch begins; the first row only begins one."""
        t_ns, rate_bps = number_to_ns(t_s), _bps("mbps", mbps, 1e6)
        observed = self._spool.of(trace)
        observed.add(RecordKind.SEEN, t_ns)
        if trace in self._last_ns:
            observed.add(RecordKind.RATE, self._last_ns[trace], x=rate_bps)
        else:
            observed.add(RecordKind.NETWORK, t_ns, code=self._network(trace))
        self._last_ns[trace] = t_ns

    def _network(self, trace: str) -> int:
        for name, kind in _PENSIEVE.items():
            if re.match(name, trace):
                return kind
        given = NETWORKS[self._options.settings.get("network", "unknown")]
        if given == UNKNOWN:
            self._report.note("names that do not tell the network, which stays unknown (setting network)")
        return given


class _Pairs(_Hsdpa):
    """Pensieve's own files: a time and a rate on each line, no header, one trace per file."""

    def read_lines(self, text: Iterator[str]) -> None:
        for line, pair in enumerate(text, 1):
            self._report.rows += 1
            try:
                numbers = pair.split()
                if len(numbers) != 2:
                    raise ValueError(f"{len(numbers)} fields instead of 2")
                self._take(self._path.name.removesuffix(".gz"), *numbers)
            except ValueError as error:
                self._report.bad(self._path, line, str(error))


class _Runs(_Layout):
    """Several runs in one file; a time that goes back, or another label, begins the next."""

    source = "SIGCOMM 2021 5G power and performance (Narayanan et al.)"
    licence = "not stated"
    _last: tuple[int, tuple[str, ...]] | None = None
    _rows = 0
    _runs = 0

    @property
    def _is_mixed(self) -> bool:
        return self._options.settings.get("runs") == "mixed"

    def _run(self, t_ns: int, label: tuple[str, ...] = ()) -> str:
        if self._is_mixed:
            return self._name
        self._rows += 1
        if self._last is None or t_ns < self._last[0] or label != self._last[1]:
            self._runs += 1
            if self._runs > _ENOUGH_RUNS and self._rows < SHORTEST_RUN_ROWS * self._runs:
                raise DataQualityError(
                    f"{self._name}: time goes back in {self._runs} of {self._rows} rows: they are shuffled",
                    hint="--set runs=mixed makes one trace of them, without an order in time",
                )
        self._last = (t_ns, label)
        return f"{self._name}#{self._runs:03d}"


class _Transfers(_Runs):
    columns = (
        *("throughput", "time_since_start", "direction"),
        *("network type", "provider", "target bandwidth"),
    )

    def _take(self, rate: str, time_s: str, direction: str, network: str, provider: str, target: str) -> None:
        if direction not in ("downlink", "uplink"):
            raise ValueError(f"direction {direction[:40]!r} is not known")
        if not (is_text(network) and is_text(provider)):
            raise ValueError("network type or provider is not valid text")
        rate_bps, t_ns = _bps("throughput", rate, 1e6), number_to_ns(time_s)
        down_bps, up_bps = (rate_bps, math.nan) if direction == "downlink" else (math.nan, rate_bps)
        target_mbps = within("target bandwidth", target, 1e6)
        user = self._run(t_ns, (direction, network, provider, target))
        self.facts.setdefault(user, {"direction": direction, "network": network, "provider": provider})
        self.facts[user]["target_mbps"] = target_mbps
        self._add(user, t_ns, down_bps, up_bps, network)


class _Walks(_Runs):
    columns = ("Timestamp", "nrStatus", "downlink_Mbps", "uplink_Mbps")

    def _take(self, time_s: str, status: str, down: str, up: str) -> None:
        t_ns = number_to_ns(time_s)
        down_bps, up_bps = _bps("downlink_Mbps", down, 1e6), _bps("uplink_Mbps", up, 1e6)
        # Between shuffled rows a network would last for no time at all.
        network = "" if self._is_mixed else "5g" if status == "CONNECTED" else status
        self._add(self._run(t_ns), t_ns, down_bps, up_bps, network)


def _bps(name: str, text: str, unit_bps: float) -> float:
    return within(name, text, 1e9) * unit_bps
