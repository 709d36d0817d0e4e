"""`import_recording`: a file that other software wrote becomes a recording, whatever its format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from joulefleet.errors import ConfigError, DataQualityError, StorageError
from joulefleet.files import file_sha256, new_folder
from power.importers import powertool_binary, powertool_csv, pymonsoon_csv
from power.importers.csv_numbers import PLAIN_CSV
from power.importers.source import MAX_BAD_ROWS, Channel, Facts, ImportOptions, Source, write_source
from power.model import Accuracy
from power.recording.records import RecordingRecord

Reader = Callable[[Path, BinaryIO, ImportOptions, Facts], Source]

HEAD_BYTES = 4096

READERS: dict[str, Reader] = {
    "powertool-csv": powertool_csv.read,
    "pymonsoon-csv": pymonsoon_csv.read,
    "powertool-binary": powertool_binary.read,
}
_LOOKS_LIKE: dict[str, Callable[[bytes], bool]] = {
    "powertool-csv": powertool_csv.looks_like,
    "pymonsoon-csv": pymonsoon_csv.looks_like,
    "powertool-binary": powertool_binary.looks_like,
}


def import_recording(
    path: Path,
    folder: Path,
    *,
    form: str = "auto",
    channel: Channel = "main",
    accuracy: Accuracy | None = None,
    max_bad_rows: int = MAX_BAD_ROWS,
) -> RecordingRecord:
    """Turn a file of other software into a recording. Nothing is left behind if that fails.

    Args:
        path: The file.
        folder: Where the recording goes; must not exist.
        form: Its format; ``auto`` finds it by what the file holds, never by its name.
        channel: Which channel to take.
        accuracy: Of the instrument that made the file, if it is known.
        max_bad_rows: Rows that are no numbers are left out; with more of them, the import fails.

    Raises:
        ConfigError: There is no such format.
        DataQualityError: The file is of no known format, or its times or numbers make no sense.
        StorageError: It cannot be read, or the folder cannot be written.
    """
    if form not in ("auto", *READERS):
        raise ConfigError(f"no format {form!r} to import", hint=f"auto, {', '.join(READERS)}")
    options = ImportOptions(channel, accuracy, max_bad_rows)
    if path.exists() and not path.is_file():  # it is read twice, and a device such as /dev/zero has no end
        raise StorageError(f"{path}: is no file", hint="save what a pipe gives as a file, and import that")
    try:
        sha256 = file_sha256(path)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}", hint="check the path") from error
    facts: Facts = {"source_file": path.name, "source_sha256": sha256, "channel": channel}
    with new_folder(folder) as hidden, path.open("rb") as file:
        name = find_format(path, file.read(HEAD_BYTES)) if form == "auto" else form
        file.seek(0)
        return write_source(READERS[name](path, file, options, facts), hidden, options)


def find_format(path: Path, head: bytes) -> str:
    """The format of a file, by its first bytes."""
    for name, looks_like in _LOOKS_LIKE.items():
        if looks_like(head):
            return name
    if not head:
        raise DataQualityError(f"{path}: the file is empty", hint="copy it, or export it, again")
    raise DataQualityError(
        f"{path}: none of the formats that can be imported ({', '.join(READERS)})",
        hint='a CSV file begins with "Time (s),Main Avg Current (mA),..." (PowerTool) or "Time(ms),Main(mA),'
        f"...\" (the vendor's Python package), a .pt4 or .pt5 with 1024 bytes; {PLAIN_CSV}",
    )
