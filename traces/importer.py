"""From a foreign file to a stored trace set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from joulefleet.errors import DataQualityError, StorageError
from joulefleet.provenance import Origin, Provenance, weakest
from joulefleet.records import read_record
from traces.readers import READERS
from traces.readers.base import ImportReport, ReaderOptions
from traces.storage.trace_set import ORIGIN_FILE, ImportRecord, OriginRecord, TraceSet, new_trace_set


def source_bytes(source: Path) -> int:
    """Size of a file, or of everything in a folder: what progress counts up to."""
    try:
        if source.is_dir():
            return sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        return source.stat().st_size
    except OSError as error:
        raise StorageError(f"{source}: {error.strerror or error}", hint="check the path") from error


def import_traces(
    format_name: str,
    source: Path | str,
    out: Path | str,
    options: ReaderOptions | None = None,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> TraceSet:
    """Read a source with the reader of its format and store what it gives as a new set.

    Examples:
        >>> people = import_traces("csv", "screen.csv", "people")

    Raises:
        ConfigError: There is no such format, or the options do not fit it.
        DataQualityError: Too many bad rows, or a file that is not of this format.
        StorageError: The source cannot be read, or the folder exists already.
    """
    source, out, options = Path(source), Path(out), options or ReaderOptions()
    read = READERS.load(format_name)
    report = ImportReport(max_bad_rows=options.max_bad_rows, on_progress=on_progress)
    with new_trace_set(out) as new:
        try:
            for trace in read(source, options, report):
                new.add(trace)
        except UnicodeDecodeError as error:
            raise DataQualityError(
                f"{source.name}: not {error.encoding} text (byte {error.start})",
                hint="convert the file, e.g. with `iconv -t utf-8`",
            ) from error
        except EOFError as error:  # a compressed file that was cut short
            raise DataQualityError(f"{source.name}: ends too early ({error})") from error
        new.describe(
            _provenance(source, basis=f"{format_name}: {source.name}"),
            imported=ImportRecord(
                format=format_name,
                source=source.name,
                rows=report.rows,
                bad_rows=report.bad_rows,
                bad_examples=tuple(str(row) for row in report.examples),
                notes=dict(report.notes),
            ),
        )
    return TraceSet(out)


def _provenance(source: Path, *, basis: str) -> Provenance:
    """Imported, or as weak as the tables were when joulefleet exported them."""
    stored = (source if source.is_dir() else source.parent) / ORIGIN_FILE
    if not stored.is_file():
        return Provenance(origin=Origin.IMPORTED, basis=basis)
    before = read_record(stored, OriginRecord).provenance
    return before.weakened(weakest([Origin.IMPORTED, before.origin]), basis=basis)
