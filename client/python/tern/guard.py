"""The guard that lets one thread at a time use a connection.

An answer's memory is valid until the next call. So no other thread may make a call between a
thread's call and the copy of its answer. libtern refuses two threads inside its calls; this guard
also covers the time until the answer is copied.
"""

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
    """The guard of one connection. The check makes no system call. A connection may pass from one
    thread to another between two calls."""

    def __init__(self) -> None:
        self._lock, self._pid = threading.RLock(), os.getpid()

    def enter(self) -> bool:
        return self._lock.acquire(blocking=False)

    def leave(self) -> None:
        self._lock.release()

    def refusal(self) -> Conflict | DaemonLost:
        if os.getpid() != self._pid:  # at the fork, another thread of the parent was in a call
            return DaemonLost("the connection belongs to the parent of this forked process: open another one here")
        return Conflict(
            "another thread is in a call on this connection: use a connection in one thread at a time, or give each thread "
            "its own"
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
    """Guards all public methods of a class whose objects have a connection or are one."""
    for name, call in list(vars(cls).items()):
        # A context manager (__wrapped__) is left out: its body resumes after the call.
        public = not name.startswith("_") or name in ("__enter__", "__exit__")
        if public and inspect.isfunction(call) and not hasattr(call, "__wrapped__"):
            setattr(cls, name, _guarded(call))
    return cls
