"""One thread at a time on a connection: what an answer has brought is copied before another thread's call takes its
place. Libtern refuses two threads within its calls; this refuses those between a call and the copy of its answer."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import Conflict, DaemonLost

C = TypeVar("C", bound=type)


class Guard:
    """One guard a connection. The check makes no system call; a thread may hand the connection on between two calls."""

    def __init__(self) -> None:
        self._lock, self._pid = threading.RLock(), os.getpid()

    def enter(self) -> bool:
        return self._lock.acquire(blocking=False)

    def leave(self) -> None:
        self._lock.release()

    def refusal(self) -> Conflict | DaemonLost:
        if os.getpid() != self._pid:  # a thread of the parent was in a call
            return DaemonLost("this is a forked child, and the connection is its parent's: connect anew")
        return Conflict(
            "another thread is in a call on this connection: hand it on between calls, or let each thread connect by itself"
        )


def _guarded(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def guarded_call(self: Any, *args: Any, **named: Any) -> Any:
        guard: Guard = getattr(self, "connection", self)._guard
        if not guard.enter():
            raise guard.refusal()
        try:
            return call(self, *args, **named)
        finally:
            guard.leave()

    return guarded_call


def one_thread(cls: C) -> C:
    """All public methods of the class, whose objects have a connection or are one."""
    for name, call in list(vars(cls).items()):
        public = not name.startswith("_") or name in ("__enter__", "__exit__")
        if public and inspect.isfunction(call) and not hasattr(call, "__wrapped__"):  # a context manager's goes on later
            setattr(cls, name, _guarded(call))
    return cls
