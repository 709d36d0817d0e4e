"""Opens what a user points at: one file or a folder, plain or gzip, text in a stated encoding, row by row.

Nothing here holds more than one chunk and one line. Bytes that do not decode become lone surrogates
(Python's ``surrogateescape``), so that one bad name costs its row and not the import; `is_text` finds them.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from joulefleet.budgets import UNPACKED_BYTES, UNPACKED_RATIO
from joulefleet.errors import ConfigError, DataQualityError, StorageError
from traces.readers.base import ImportReport, ReaderOptions
from traces.storage.trace_set import ORIGIN_FILE

CHUNK_BYTES = 1 << 20
MAX_LINE_CHARS = 1 << 20

_ARCHIVES = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ\x00": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
}
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_TAR_MAGIC_AT = 257  # POSIX.1-1988 ustar header, offset of the magic


def files_of(source: Path, *suffixes: str) -> list[Path]:
    """The file (or pipe) itself, or a folder's files with one of ``suffixes`` (each also as ``.gz``), sorted.

    Hidden files are not the set's, nor is what `traces.storage.csv_export` writes beside its tables.

    Raises:
        StorageError: There is no such file or folder.
        DataQualityError: The folder has no such file.
    """
    if not source.exists():
        raise StorageError(f"{source}: no such file or folder")
    if not source.is_dir():
        return [source]
    wanted = tuple(suffix + packed for suffix in suffixes for packed in ("", ".gz"))
    found = sorted(path for path in source.iterdir() if path.is_file() and path.name.lower().endswith(wanted))
    found = [path for path in found if not path.name.startswith(".") and path.name != ORIGIN_FILE]
    if not found:
        raise DataQualityError(f"{source}: no file ends in {', '.join(suffixes)}")
    return found


def require_file(path: Path) -> None:
    """Refuse a pipe for a format that is not read from front to back.

    Raises:
        StorageError: It is one.
    """
    if path.exists() and not path.is_file():
        raise StorageError(
            f"{path}: this format is read more than once, which a pipe does not allow",
            hint="save what the pipe gives as a file, and import that",
        )


def stem(path: Path) -> str:
    """The name without its endings: ``u00.csv.gz`` is ``u00``."""
    name = path.name.removesuffix(".gz")
    return name[: -len(Path(name).suffix)] if Path(name).suffix else name


def byte_chunks(path: Path, report: ImportReport, *, share: float = 1.0) -> Iterator[bytes]:
    """The file's bytes, unpacked if it is gzip.

    Args:
        path: The file.
        report: Learns how far the reading is.
        share: What part of the file's size this pass counts for, when it is read more than once.

    Raises:
        DataQualityError: A gzip file is cut short or damaged (after everything before the damage was given
            out), or the file is of a kind that must be unpacked first.
        StorageError: The file cannot be read.
    """
    begin = report.bytes_read
    with _opened(path) as raw:
        magic = raw.peek(8)[:8]  # type: ignore[attr-defined]
        _refuse_archive(path, magic)
        is_gzip = magic.startswith(b"\x1f\x8b")
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if is_gzip else raw
        given = 0
        packed = path.stat().st_size if is_gzip and raw.seekable() else 0
        while chunk := _next_chunk(stream, path, given):
            if packed and given > UNPACKED_BYTES and given > UNPACKED_RATIO * packed:
                raise DataQualityError(
                    f"{path.name}: {packed} packed bytes give more than {given} unpacked",
                    hint="unpack it first",
                )
            if given == 0 and chunk[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
                raise _to_unpack(path, "a tar archive")
            given += len(chunk)
            report.progress(begin + round(share * (raw.tell() if raw.seekable() else given)))
            yield chunk


def _opened(path: Path) -> IO[bytes]:
    if path.is_char_device() or path.is_block_device():  # unlike a pipe it may have no end
        raise StorageError(f"{path}: is a device, not a file", hint="name a file, a folder or a pipe")
    try:
        return path.open("rb")
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def _next_chunk(stream: IO[bytes], path: Path, given: int) -> bytes:
    try:
        # read1 hands out what it has before it meets the damage; read would lose it.
        return stream.read1(CHUNK_BYTES)  # type: ignore[attr-defined, no-any-return]
    except EOFError as error:
        raise DataQualityError(
            f"{path.name}: the gzip file is cut short; {given} bytes could be unpacked",
            hint="copy or download it again; `gzip -t` must be silent",
        ) from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DataQualityError(
            f"{path.name}: the gzip file is damaged after {given} unpacked bytes ({error})",
            hint="copy or download it again; `gzip -t` must be silent",
        ) from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def _refuse_archive(path: Path, magic: bytes) -> None:
    for begin, kind in _ARCHIVES.items():
        if magic.startswith(begin):
            raise _to_unpack(path, kind)


def _to_unpack(path: Path, kind: str) -> DataQualityError:
    return DataQualityError(
        f"{path.name}: this is {kind}", hint="unpack it first; only gzip is read as it lies"
    )


def text_chunks(path: Path, options: ReaderOptions, report: ImportReport) -> Iterator[str]:
    """The file's text. A byte order mark decides the encoding, else the setting ``encoding``, else UTF-8."""
    chunks = byte_chunks(path, report)
    first = next(chunks, b"")
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if first.startswith(mark)), None)
    decoder = _decoder(encoding or options.settings.get("encoding", "utf-8"))
    try:
        yield decoder.decode(first)
        for chunk in chunks:
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise DataQualityError(
            f"{path.name}: is not {error.encoding} text ({error.reason})",
            hint="say which it is, e.g. --set encoding=latin-1",
        ) from error


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    try:
        return codecs.getincrementaldecoder(encoding)(errors="surrogateescape")
    except LookupError as error:
        raise ConfigError(
            f"encoding: there is no {encoding!r}", hint="e.g. utf-8, latin-1, cp1252"
        ) from error


def is_text(value: str) -> bool:
    """Whether every byte of it could be decoded."""
    return value.isascii() or _LONE_SURROGATE.search(value) is None


def text_or_nothing(value: object) -> str:
    """A value that should be text; nothing if it is something else or could not be decoded."""
    return value if isinstance(value, str) and is_text(value) else ""


def lines(chunks: Iterable[str], name: str) -> Iterator[str]:
    """The lines of a text, each with its end.

    Raises:
        DataQualityError: A line is longer than ``MAX_LINE_CHARS``.
    """
    rest = ""
    count = 0
    for chunk in chunks:
        parts = (rest + chunk).split("\n")
        rest = parts.pop()
        if len(rest) > MAX_LINE_CHARS:
            raise DataQualityError(
                f"{name}:{count + len(parts) + 1}: a line has more than {MAX_LINE_CHARS} characters",
                hint="check that the format name fits the file",
            )
        for part in parts:
            yield part + "\n"
        count += len(parts)
    if rest:
        yield rest
