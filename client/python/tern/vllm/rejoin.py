"""Joining a daemon that was started again, in a thread, so that vLLM's steps do not wait."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock, Thread

from ..connection import Pool
from .settings import LOGGER

FIRST_S, LONGEST_S = 0.1, 10.0  # pause after an attempt that failed, which doubles each time

log = logging.getLogger(LOGGER)


class Rejoin:
    """Repeats attempts to join until one succeeds, or until it is closed."""

    def __init__(self, join: Callable[[], Pool]) -> None:
        self._join, self._lock = join, Lock()
        self._pool: Pool | None = None
        self._closed = False
        Thread(target=self._run, name="tern-rejoin", daemon=True).start()

    def pool(self) -> Pool | None:
        """Returns the joined pool, which the caller owns from now on; None: not joined yet."""
        with self._lock:
            pool, self._pool = self._pool, None
            return pool

    def close(self) -> None:
        """Stops without waiting: the result of an attempt under way is closed when it ends."""
        with self._lock:
            self._closed = True
            if self._pool:
                self._pool.connection.close()

    def _run(self) -> None:
        pause, said = FIRST_S, ""
        while not self._closed:
            try:
                self._keep(self._join())
                return
            except Exception as why:  # any error: no other thread tries
                if str(why) != said:
                    log.warning("tern: the daemon is not back yet: %s", why)
                said = str(why)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_S)

    def _keep(self, pool: Pool) -> None:
        with self._lock:
            if self._closed:
                pool.connection.close()
            else:
                self._pool = pool
