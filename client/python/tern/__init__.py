"""Tern for Python: KV pages that a daemon owns, as NumPy arrays.

The package calls the shared library libtern through ctypes. README.md shows the calls in order of
use; tern.h and the headers that it includes define them, with their errors.
"""

from __future__ import annotations

from ._lib import PEER_ANY, PEER_DISK, STEP_NONE, lib
from .aio import Async, Event, chains
from .blocks import BlockCounts, BlockPin, Blocks, Spans
from .connection import Connection, Depths, Engine, Pool, Reset
from .errors import (
    Busy,
    Conflict,
    Corrupt,
    DaemonLost,
    Denied,
    Disk,
    Exhausted,
    Gone,
    Internal,
    Invalid,
    Malformed,
    PeerLost,
    Quota,
    Shortage,
    TernError,
    TimedOut,
    Unsupported,
)
from .layout import Axis, Channels, ExtraKey, Field, Group, Namespace
from .lease import Lease, Told
from .records import Merged, Record, Recorded
from .session import Batch, BatchFailed, Copy, Op, Result, Retracted, Session, Stored, Ticket, Turn


def connect(path: str, *, deadline_ms: int = 0) -> Connection:
    """Connects to a tenant's socket and returns the Connection, which the caller closes.

    Args:
        path: path of the tenant's Unix socket.
        deadline_ms: deadline in milliseconds; 0: libtern's default.

    Raises:
        TernError: the daemon did not answer or refused the connection.
    """
    return Connection(path, deadline_ms=deadline_ms)


def version() -> str:
    """Returns the version of libtern."""
    return str(lib.tern_version().decode())


__all__ = [
    "PEER_ANY",
    "PEER_DISK",
    "STEP_NONE",
    "Async",
    "Axis",
    "Batch",
    "BatchFailed",
    "BlockCounts",
    "BlockPin",
    "Blocks",
    "Busy",
    "Channels",
    "Conflict",
    "Connection",
    "Copy",
    "Corrupt",
    "DaemonLost",
    "Denied",
    "Depths",
    "Disk",
    "Engine",
    "Event",
    "Exhausted",
    "ExtraKey",
    "Field",
    "Gone",
    "Group",
    "Internal",
    "Invalid",
    "Lease",
    "Malformed",
    "Merged",
    "Namespace",
    "Op",
    "PeerLost",
    "Pool",
    "Quota",
    "Record",
    "Recorded",
    "Reset",
    "Result",
    "Retracted",
    "Session",
    "Shortage",
    "Spans",
    "Stored",
    "TernError",
    "Ticket",
    "TimedOut",
    "Told",
    "Turn",
    "Unsupported",
    "chains",
    "connect",
    "version",
]
