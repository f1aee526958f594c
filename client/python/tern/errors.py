"""One exception class for each error of libtern, with the error's numbers as attributes.

error_of maps a number of enum tern_err to its class. All other modules raise through it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shortage:
    """The reason for a lack of pages. The numbers are pages of `group`."""

    group: str  # name of the group that lacks pages; after a retract, pages of the host tier
    needed: int
    free: int
    evictable: int  # in prefixes that nobody pins
    retiring: int  # free when a step has passed
    until_step: int  # let all ranks pass it, then retry; 0: no step will free more


class TernError(Exception):
    """An error of libtern. `kind` is the error's name; the message names what to do."""

    kind = "?"
    done: list[bool] = []  # for a get or put of blocks: for each key, whether it was done
    numbers = (0, 0)  # the numbers in the daemon's text, in order; QUOTA: needed, and the most

    def __init__(self, text: str) -> None:
        super().__init__(text)


class Invalid(TernError):
    """A value is out of range, or the session's state does not allow the call."""

    kind = "INVALID"
    align = 0  # pool.align_tokens, if the depth of a commit is no multiple of it; else 0
    handed = 0  # fetch by ticket: the length handed over, if the session's list has another; else 0


class Malformed(TernError):
    """A turn record is invalid; or the daemon sent an invalid message: the connection is dead."""

    kind = "MALFORMED"


class Unsupported(TernError):
    """The daemon, the peer or this machine cannot do that. Do not retry."""

    kind = "UNSUPPORTED"


class Conflict(TernError):
    """The call contradicts what exists already, or another thread is in a call."""

    kind = "CONFLICT"


class Exhausted(TernError):
    """POOL_EXHAUSTED: there are not enough pages. `shortage` has what waiting can free."""

    kind = "POOL_EXHAUSTED"

    def __init__(self, text: str, shortage: Shortage | None = None) -> None:
        super().__init__(text)
        self.shortage = shortage or Shortage("", 0, 0, 0, 0, 0)

    @property
    def until_step(self) -> int:
        return self.shortage.until_step


class PeerLost(TernError):
    """The daemon of another host is not connected. This connection stays usable."""

    kind = "PEER_LOST"


class TimedOut(TernError):
    """The deadline passed, and the request may still take effect.

    For a session, recover() returns its lengths and table now.
    """

    kind = "TIMED_OUT"


class Busy(TernError):
    """A limit on concurrent work is reached: retry, after `retry_ms` if that is not 0."""

    kind = "BUSY"

    def __init__(self, text: str, retry_ms: int = 0) -> None:
        super().__init__(text)
        self.retry_ms = retry_ms


class Gone(TernError):
    """The session or turn is closed or has ended: drop it. Or this fetch or recover was cancelled:
    then the session stays open and continues with what it has."""

    kind = "GONE"


class Denied(TernError):
    """This tenant may not do that."""

    kind = "DENIED"


class Quota(TernError):
    """A limit that waiting does not lift.

    If it is a limit on pages, the request needs `shortage.needed` pages at once, and there can be
    at most `shortage.free`. For other limits see `numbers`.
    """

    kind = "QUOTA"

    def __init__(self, text: str, shortage: Shortage | None = None) -> None:
        super().__init__(text)
        self.shortage = shortage or Shortage("", 0, 0, 0, 0, 0)


class Corrupt(TernError):
    """Bytes do not match their checksum. No wrong byte was used: compute what is missing."""

    kind = "CORRUPT"


class Disk(TernError):
    """The disk could not be written or read."""

    kind = "DISK"


class Internal(TernError):
    """This process is out of memory, or Tern has a bug: see the daemon's log."""

    kind = "INTERNAL"


class DaemonLost(TernError):
    """The connection to this host's daemon ended. Close it, and connect again."""

    kind = "DAEMON_LOST"


# Indexed by the number in tern_err.h; 0 is OK.
KINDS: list[type[TernError]] = [
    TernError,
    Invalid,
    Malformed,
    Unsupported,
    Conflict,
    Exhausted,
    PeerLost,
    TimedOut,
    Busy,
    Gone,
    Denied,
    Quota,
    Corrupt,
    Disk,
    Internal,
    DaemonLost,
]


def error_of(
    err: int, text: str, shortage: Shortage | None = None, retry_ms: int = 0
) -> TernError:
    """Returns the exception for `err`, a number of enum tern_err that is not 0."""
    kind = KINDS[err] if 0 < err < len(KINDS) else Internal
    if kind is Exhausted:
        return Exhausted(text, shortage)
    if kind is Quota:
        return Quota(text, shortage)
    if kind is Busy:
        return Busy(text, retry_ms)
    return kind(text)
