"""Why a job ends early. The codes go over the wire; the host turns them into its typed errors."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CANCELLED = "cancelled"
DEADLINE = "deadline"
LINK_LOST = "link_lost"
LIMIT = "limit"

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LinkLost(Exception):
    """The host is gone: end of input, a broken pipe, or nobody reads."""


class ProtocolError(Exception):
    """The host sent something this agent does not understand."""


class Interrupted(Exception):
    """The work is to end here.

    Attributes:
        reason: `CANCELLED`, `DEADLINE`, `LINK_LOST` or `LIMIT`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class JobFault(Exception):
    """The job cannot be done, and why.

    Attributes:
        code: ``bad_job``, ``bad_data``, ``backend_missing``, ``storage_full``, ``storage``, ``unknown_job``,
            ``busy`` or ``protocol``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def storage_fault(path: Path, error: OSError) -> JobFault:
    """The operating system's refusal to write."""
    code = "storage_full" if error.errno in _FULL else "storage"
    return JobFault(code, f"{path.name} cannot be written: {error.strerror or error}")
