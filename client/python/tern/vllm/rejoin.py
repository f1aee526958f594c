"""The way back to a daemon that was started again. A thread tries, so that vLLM's steps wait for nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock, Thread

from ..connection import Pool
from .settings import LOGGER

FIRST_S, LONGEST_S = 0.1, 10.0  # the pause behind an attempt that fails, which doubles

log = logging.getLogger(LOGGER)


class Rejoin:
    """Joins until it goes well, or until it is closed."""

    def __init__(self, join: Callable[[], Pool]) -> None:
        self._join, self._lock = join, Lock()
        self._pool: Pool | None = None
        self._closed = False
        Thread(target=self._run, name="tern-rejoin", daemon=True).start()

    def pool(self) -> Pool | None:
        """What it has joined, which is the caller's from now on; None: it is not there yet."""
        with self._lock:
            pool, self._pool = self._pool, None
            return pool

    def close(self) -> None:
        """Waits for nothing: an attempt that is under way comes to nothing when it ends."""
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
            except Exception as why:  # whatever it is: nobody else tries
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
