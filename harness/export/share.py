"""A copy of a run that can be given away: without how its devices are reached and who measured.

Addresses, users and key files stand in ``config/devices.toml``, and from there get into logs, errors and
records. Each is replaced by a name (``host-1``) wherever it is written, in tables too; what looks like an
address, a login or a home folder is replaced as well. At the end the copy is searched for what was to be
replaced: a copy in which something is left is not made.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.inventory import Inventory, Login, load_inventory
from joulefleet.budgets import RECORD_BYTES, OverBudget, parse_json, read_bounded
from joulefleet.errors import DataQualityError, JoulefleetError, StorageError
from joulefleet.files import new_folder
from joulefleet.runstore.run import read_run
from joulefleet.runstore.table import PARQUET_SUFFIX, STREAM_SUFFIX, iter_batches

NOT_PRIVATE = {"", "localhost", "127.0.0.1", "::1"}
KEPT_BACK = ("*.known_hosts", ".*", "*.torn")
"""Files that are of no use to others."""
BINARY = (".bin", ".npz")
"""Bytes of an instrument, arrays: no texts are in them."""

_PATTERNS = {
    "IP address": re.compile(r"(?<![\w.-])(?!127\.0\.0\.1\b|0\.0\.0\.0\b)(?:\d{1,3}\.){3}\d{1,3}(?![\w.-])"),
    "IPv6 address": re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}(?![\w:])"),
    "login": re.compile(r"(?<![\w.@-])[\w.-]+@(?=[\w-]+(?:\.[\w-]+)+|host-\d)"),
    "home folder": re.compile(r"/(?:home|Users|data/user)/[^/\s\"'\\:]+"),
    "host key": re.compile(r"SHA256:[A-Za-z0-9+/]{40,}=*"),
    "serial port by name": re.compile(r"/dev/serial/by-id/[^\s\"'\\]+"),
}
_REPLACED_BY = {
    "IP address": "ADDRESS",
    "IPv6 address": "ADDRESS",
    "login": "USER@",
    "home folder": "/home/USER",
    "host key": "HOSTKEY",
    "serial port by name": "/dev/serial/by-id/PORT",
}


@dataclass(slots=True)
class SharedRun:
    """What became of a run that is to be given away.

    Attributes:
        replaced: How often each kind of thing was replaced.
        changed: Files that differ from the originals; of evidence the hashes then no longer fit.
        left_out: Files that were not copied.
    """

    replaced: Counter[str] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def share_run(run: Path, out: Path) -> SharedRun:
    """Copy a run into a new folder, private things replaced.

    Raises:
        StorageError: The folder exists already or cannot be written.
        DataQualityError: Something private would have stayed in it.
    """
    read_run(run)
    names = _private_names(run)
    shared = SharedRun()
    with new_folder(out) as folder:
        for path in sorted(run.rglob("*")):
            name = path.relative_to(run)
            if path.is_dir():
                continue
            if any(path.match(pattern) for pattern in KEPT_BACK):
                shared.left_out.append(str(name))
                continue
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if _copy(path, target, names, shared):
                shared.changed.append(str(name))
        _search(folder, names)
    return shared


def _private_names(run: Path) -> dict[str, str]:
    """What identifies the lab's machines and people, with what stands in its place; the longest first."""
    found: dict[str, str] = {}
    for file in sorted((run / "config").glob("devices*.toml")):
        try:
            inventory = load_inventory(file)
        except JoulefleetError as error:
            raise DataQualityError(
                f"{file}: cannot be read, so what is private is not known: {error.message}",
                hint="mend or remove it, then share the run again",
            ) from error
        for login in _logins(inventory):
            for kind, value in (("host", login.host), ("key", str(login.key or ""))):
                if value not in NOT_PRIVATE and value not in inventory.devices:
                    found.setdefault(value, f"{kind}-{sum(v.startswith(kind) for v in found.values()) + 1}")
            if login.user:  # a short word may be part of others: it counts where people are named
                found.setdefault(f"{login.user}@", "USER@")
                found.setdefault(f"/{login.user}/", "/USER/")
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _logins(inventory: Inventory) -> Iterator[Login]:
    for device in inventory.devices.values():
        yield device
        if device.jump is not None:
            yield device.jump


def _copy(path: Path, target: Path, names: dict[str, str], shared: SharedRun) -> bool:
    """Copy one file; returns whether something in it was replaced."""
    before = shared.replaced.total()
    if path.parent.name == "config" and path.match("devices*.toml"):
        target.write_text(_inventory_text(load_inventory(path)), encoding="utf-8")
        shared.replaced["inventory rewritten"] += 1
    elif path.suffix in (PARQUET_SUFFIX, STREAM_SUFFIX):
        _copy_table(path, target, names, shared)
    else:
        try:
            data = read_bounded(path, RECORD_BYTES) if path.suffix not in BINARY else b""
        except OverBudget as error:
            raise StorageError(f"{path}: {error}") from error
        # A log that was cut in the middle of a letter is text all the same.
        text = data.decode(errors="surrogateescape")
        replaced = _in_text(text, path.suffix, names, shared.replaced) if text else text
        if replaced == text:
            shutil.copyfile(path, target)
        else:
            target.write_text(replaced, encoding="utf-8", errors="surrogateescape")
    return shared.replaced.total() > before


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise StorageError(f"a record of the run is not readable as JSON ({error})") from error


def _in_text(text: str, suffix: str, names: dict[str, str], counts: Counter[str]) -> str:
    """A text, and JSON value by value: a name in a key would make the record unreadable."""
    before = counts.total()
    if suffix == ".json":
        value = _in_value(_parsed(text), names, counts)
        return text if counts.total() == before else json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    if suffix == ".jsonl":
        lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        values = [_in_value(_parsed(line), names, counts) for line in lines]
        return text if counts.total() == before else "".join(json.dumps(value) + "\n" for value in values)
    return _clean(text, names, counts)


def _in_value(value: Any, names: dict[str, str], counts: Counter[str]) -> Any:
    if isinstance(value, str):
        return _clean(value, names, counts)
    if isinstance(value, dict):
        return {key: _in_value(each, names, counts) for key, each in value.items()}
    if isinstance(value, list):
        return [_in_value(each, names, counts) for each in value]
    return value


def _clean(text: str, names: dict[str, str], counts: Counter[str]) -> str:
    for name, other in names.items():
        text, count = _whole(name).subn(lambda _, other=other: other, text)  # type: ignore[misc]
        if count:
            counts[re.sub(r"[-@/\d]+", "", other).lower()] += count
    for kind, pattern in _PATTERNS.items():
        text, count = pattern.subn(_REPLACED_BY[kind], text)
        if count:
            counts[kind] += count
    return text


def _whole(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}" + ("" if name[-1] in "@/" else r"(?![\w-])"))


def _copy_table(path: Path, target: Path, names: dict[str, str], shared: SharedRun) -> None:
    """A table as it is, unless a text in it is private: then written anew."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    before = shared.replaced.total()
    batches = []
    for batch in iter_batches(path):
        texts = [i for i, column in enumerate(batch.schema) if pa.types.is_string(column.type)]
        if not texts:
            break
        columns = list(batch.columns)
        for i in texts:
            cells = [_in_value(cell, names, shared.replaced) for cell in columns[i].to_pylist()]
            columns[i] = pa.array(cells, pa.string())
        batches.append(pa.RecordBatch.from_arrays(columns, schema=batch.schema))
    if shared.replaced.total() == before:
        shutil.copyfile(path, target)
    elif path.suffix == PARQUET_SUFFIX:
        pq.write_table(pa.Table.from_batches(batches), target, compression="zstd")
    else:
        raise StorageError(f"{path}: an open table names what is private", hint="salvage the run first")


def _inventory_text(inventory: Inventory) -> str:
    """The devices without how they are reached; comments are left out with it."""
    parts: list[str] = []
    for name, device in inventory.devices.items():
        facts = device.model_dump(
            mode="json",
            exclude_defaults=True,
            exclude={"host", "port", "user", "key", "password_env", "jump"},
        )
        if device.transport == "ssh":
            facts["host"] = f"host-of-{name}"
        parts += _toml(f"devices.{name}", facts)
    for name, meter in inventory.meters.items():
        parts += _toml(f"meters.{json.dumps(name)}", meter.model_dump(mode="json", exclude_defaults=True))
    text = "# How the devices are reached was left out.\n" + "\n".join(parts) + "\n"
    return _clean(text, {}, Counter())


def _toml(place: str, facts: dict[str, Any]) -> Iterator[str]:
    """One table of TOML and those inside it. A string of JSON is one of TOML too."""
    yield f"\n[{place}]"
    for key, value in facts.items():
        if value is not None and not isinstance(value, dict):
            yield f"{key} = {json.dumps(value)}"
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from _toml(f"{place}.{json.dumps(key)}", value)


def _search(folder: Path, names: dict[str, str]) -> None:
    """Fail rather than give something away."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (PARQUET_SUFFIX, STREAM_SUFFIX):
            text = path.read_bytes().decode("utf-8", "replace")
            left = next((name for name in names if name in text and _whole(name).search(text)), None)
            if left is not None:
                raise DataQualityError(
                    f"{path.relative_to(folder)} would still name {left!r}: nothing was written"
                )
