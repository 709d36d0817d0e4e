"""The manifest of a trace set: what it is, where it came from, what was done to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field, model_validator

from joulefleet.config import ClosedModel
from joulefleet.provenance import Provenance, Sha256
from joulefleet.records import StoredRecord

MANIFEST_FILE = "manifest.json"
ORIGIN_FILE = "trace-origin.json"


class TableRecord(ClosedModel):
    """One table of a set."""

    rows: int = Field(ge=0)
    sha256: Sha256


class ImportRecord(ClosedModel):
    """How a set was read from its source.

    Attributes:
        format: Name of the reader.
        source: Name of the file or folder it came from.
        rows: Rows read, bad ones included.
        bad_rows: Rows that could not be used.
        bad_examples: The first of them, with file and line.
        notes: What the reader decided, and how often.
    """

    format: str
    source: str
    rows: int = 0
    bad_rows: int = 0
    bad_examples: tuple[str, ...] = ()
    notes: dict[str, int] = Field(default_factory=dict)


class OriginRecord(StoredRecord):
    """``trace-origin.json``, beside exported tables, which cannot say it: where the traces came from."""

    provenance: Provenance


class RepairRecord(ClosedModel):
    """One change that was made to one trace of a set."""

    user: str
    channel: str
    action: str
    count: int


class TraceSetRecord(StoredRecord):
    """The manifest.

    Attributes:
        writer_version: Version of this program that wrote it.
        users: Number of traces.
        provenance: Where the traces came from; synthetic ones are ``emulated``.
        tables: Rows and hash of every table.
        imported: How they were read, for imported sets.
        repaired_from: Hash of the manifest of the set this one is a repaired copy of.
        repairs: Every change of that repair.
    """

    created_utc: datetime
    writer_version: str
    users: int = Field(ge=0)
    provenance: Provenance
    tables: dict[str, TableRecord]
    imported: ImportRecord | None = None
    repaired_from: Sha256 | None = None
    repairs: tuple[RepairRecord, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_sets(cls, data: Any) -> Any:
        """Sets of before hold the writer's version under a product's name."""
        if isinstance(data, dict) and "writer_version" not in data:
            named = [key for key in data if key.endswith("_version") and key != "schema_version"]
            if len(named) == 1:
                data["writer_version"] = data.pop(named[0])
        return data
