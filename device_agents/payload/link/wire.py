"""What both ends of the link must agree on. Pure constants and one encoder; the host imports them too."""

from __future__ import annotations

import json
from typing import Any

PROTOCOL_VERSION = 1

MAX_LINE_BYTES = 65_536
"""A message is scalars; whatever is longer travels as a raw block behind its header line."""

MAX_BLOB_BYTES = 1 << 30
"""Largest raw block the agent takes. The host has a tighter bound of its own for what comes back."""

MAX_JOURNAL_BYTES = 64 << 20
"""Of one journal. A telemetry record of a phone with 30 thermal zones has some 800 bytes: 4 hours at 5 Hz."""

MAX_COLLECT_BYTES = 1 << 20
"""Largest piece of a journal in one answer to ``collect``."""

TRANSFER_TIMEOUT_S = 600.0
"""How long either end waits for a blob; the job's deadline ends it earlier."""

CHUNK_BYTES = 65_536
"""Bytes moved by one system call: what a Linux pipe holds."""


def encode(message: dict[str, Any]) -> bytes:
    """One message as a line; a NaN is a programming error, not a number."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
