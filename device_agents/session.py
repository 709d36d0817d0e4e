"""One conversation with an agent: handshake, clock pings, rounds with their probe decision, collecting.

Every wait has a deadline; whatever comes from the device is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from device_agents.job import BlobRef, Job
from device_agents.job_record import JobRecord, read_job
from device_agents.payload.wire import MAX_COLLECT_BYTES, PROTOCOL_VERSION, encode
from device_agents.protocol import (
    AgentError,
    Blob,
    Chunk,
    EpochMarker,
    FromAgent,
    Hello,
    JobStatus,
    MarkerMessage,
    Message,
    Ok,
    Pong,
    parse_line,
)
from device_agents.round import Round, RoundResult
from device_agents.transport import Channel
from fedjoule.errors import DeviceError, DeviceFull, DeviceProtocolError, DeviceUnreachable
