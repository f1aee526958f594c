"""One class of exception for each error of libtern, with its numbers as attributes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shortage:
    """Why pages ran out. The numbers are pages of `group`."""

    group: str  # its name; for Retract, the host tier's
    needed: int
    free: int
    evictable: int  # in prefixes that nobody holds
    retiring: int  # free when a step has passed
    until_step: int  # let all ranks pass it, then repeat; 0: no step will bring more


class TernError(Exception):
    """What libtern answered: `kind` is the name of its error, the message says what to do."""

    kind = "?"
    done: list[bool] = []  # of a get or put of blocks: which keys it had done by then
    numbers = (0, 0)  # of the text, in its order, where a daemon named any; of what never fits: needed, and at most

    def __init__(self, text: str) -> None:
        super().__init__(text)


class Invalid(TernError):
    """A value is out of range, or the session is in no state for it."""

    kind = "INVALID"
    align = 0  # of a commit to no multiple of it: pool.align_tokens; else 0
    handed = 0  # of a fetch by ticket: the length that was handed over, where the session's list has another; else 0


class Malformed(TernError):
    kind = "MALFORMED"


class Unsupported(TernError):
    kind = "UNSUPPORTED"


class Conflict(TernError):
    kind = "CONFLICT"


class Exhausted(TernError):
    """POOL_EXHAUSTED: there are not enough pages. `shortage` says what waiting would bring."""

    kind = "POOL_EXHAUSTED"

    def __init__(self, text: str, shortage: Shortage | None = None) -> None:
        super().__init__(text)
        self.shortage = shortage or Shortage("", 0, 0, 0, 0, 0)

    @property
    def until_step(self) -> int:
        return self.shortage.until_step


class PeerLost(TernError):
    """The daemon of another host is not connected. This connection lives on."""

    kind = "PEER_LOST"


class TimedOut(TernError):
    """The deadline passed, and the request may still take effect. Of a session, recover() tells what it has now."""

    kind = "TIMED_OUT"


class Busy(TernError):
    """A limit on concurrent work is reached: repeat it, after `retry_ms` where that is not 0."""

    kind = "BUSY"

    def __init__(self, text: str, retry_ms: int = 0) -> None:
        super().__init__(text)
        self.retry_ms = retry_ms


class Gone(TernError):
    """The session or turn is closed or has ended: drop it. Or this fetch or recover was cancelled, and the
    session goes on with what it has."""

    kind = "GONE"


class Denied(TernError):
    kind = "DENIED"


class Quota(TernError):
    """A limit that waiting does not lift. Of pages: `shortage.needed` at once, of `shortage.free` at most."""

    kind = "QUOTA"

    def __init__(self, text: str, shortage: Shortage | None = None) -> None:
        super().__init__(text)
        self.shortage = shortage or Shortage("", 0, 0, 0, 0, 0)


class Corrupt(TernError):
    kind = "CORRUPT"


class Disk(TernError):
    kind = "DISK"


class Internal(TernError):
    kind = "INTERNAL"


class DaemonLost(TernError):
    """The connection to this host's daemon ended. Close it, and connect again."""

    kind = "DAEMON_LOST"


# By number, as in tern_err.h; 0 is OK.
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
    """The exception for a number of enum tern_err that is not 0."""
    kind = KINDS[err] if 0 < err < len(KINDS) else Internal
    if kind is Exhausted:
        return Exhausted(text, shortage)
    if kind is Quota:
        return Quota(text, shortage)
    if kind is Busy:
        return Busy(text, retry_ms)
    return kind(text)
