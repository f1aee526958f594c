"""Tern as a native plug-in of LMCache 0.5.6: an adapter of type `native_plugin` with TernConnector.

LMCache submits lists of keys and buffers and polls an eventfd; a few threads answer. Blocks of one
size form one set, and a look-up of LMCache names no size. So a process only finds blocks of the
sizes in `value_bytes`, and of sizes that it has stored or loaded itself. The module imports nothing
of LMCache.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .blocks import Spans
from .errors import Invalid
from .layout import Namespace
from .store import Settings, Store, StoreSet, block_key

FORMAT = "lmcache 1"  # of a block's content; after a change, blocks put before it are not found
SIZES_MAX = 16  # sizes of objects; objects of further sizes are not stored

log = logging.getLogger("tern.lmcache")

Call = Callable[[StoreSet, Sequence[bytes], "Sequence[Any] | Spans"], list[bool]]
Completion = tuple[int, bool, str, "list[bool] | None"]  # id, all done, the error, by key


class TernConnector:
    """The client that LMCache uses: calls to submit, an eventfd, and completions.

    Args:
        value_bytes: sizes of the objects to find from the start.
        namespace: what the objects depend on beside LMCache's keys (model, rank, group, chunk,
            salt), such as the data type of the KV.
        workers: threads that answer.
        tern: the fields of store.Settings.

    Raises:
        TernError: the configuration is wrong.
    """

    def __init__(
        self, *, value_bytes: int | Sequence[int] = (), namespace: str = "", workers: int = 2, **tern: Any
    ) -> None:
        if not isinstance(workers, int) or workers < 1:
            raise Invalid(f"workers must be a number of at least 1, not {workers!r}")
        tern.setdefault("sets_max", workers)
        self.store = Store(Settings.of(tern))
        self._namespace = Namespace(model=namespace or "lmcache", salt=FORMAT)
        self._lock = threading.Lock()
        self._sets: dict[int, StoreSet] = {}  # by size
        for size in [value_bytes] if isinstance(value_bytes, int) else value_bytes:
            self._sets[size] = self.store.prepare(self._namespace, "lmcache", size)
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._done: list[Completion] = []
        self._submitted = 0
        self._jobs: queue.SimpleQueue[tuple[int, Callable[[], list[bool]]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name="tern-lmcache", daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    # ---- calls of LMCache; only close() waits ----

    def event_fd(self) -> int:
        return self._event

    def submit_batch_get(self, keys: Sequence[str], memoryviews: Sequence[memoryview]) -> int:
        return self._submit(lambda: self._move(StoreSet.get, keys, memoryviews))

    def submit_batch_set(self, keys: Sequence[str], memoryviews: Sequence[memoryview]) -> int:
        return self._submit(lambda: self._move(StoreSet.put, keys, memoryviews))

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        return self._submit(lambda: self._exists(keys), partly=True)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        return self._submit(lambda: self._delete(keys))

    def drain_completions(self) -> list[Completion]:
        with self._lock:
            try:
                os.eventfd_read(self._event)
            except BlockingIOError:
                pass
            done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Closes the store. When this returns, nothing touches LMCache's buffers any more."""
        self.store.close()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        with self._lock:
            if self._event >= 0:
                os.close(self._event)
            self._event = -1

    # ---- the threads ----

    def _submit(self, job: Callable[[], list[bool]], partly: bool = False) -> int:
        with self._lock:
            if self._event < 0:
                raise Invalid("the connector is closed")
            self._submitted += 1
            number = self._submitted
        self._jobs.put((number if partly else -number, job))
        return number

    def _work(self) -> None:
        while item := self._jobs.get():
            number, job = item
            try:
                told = job()
                missing = told.count(False) if number < 0 else 0
                done: Completion = (abs(number), not missing, f"{missing} of {len(told)} blocks" if missing else "", told)
            except Exception as error:  # LMCache waits for each id, so each gets a completion
                log.exception("Tern's connector failed because of a bug in it")
                done = (abs(number), False, str(error), None)
            with self._lock:
                self._done.append(done)
                os.eventfd_write(self._event, 1)

    def _sized(self, size: int) -> StoreSet | None:
        with self._lock:
            if size not in self._sets:
                if len(self._sets) >= SIZES_MAX:
                    self.store.counts["sizes INVALID"] += 1
                    return None
                self._sets[size] = self.store.of(self._namespace, "lmcache", size)
                log.warning("objects of %d bytes: set value_bytes to that number to find objects before the first store", size)
            return self._sets[size]

    def _move(self, call: Call, keys: Sequence[str], views: Sequence[Any]) -> list[bool]:
        if len(keys) != len(views):
            raise Invalid(f"there are {len(keys)} keys and {len(views)} buffers")
        told = [False] * len(keys)
        by_size: dict[int, list[int]] = {}
        for i, view in enumerate(views):
            by_size.setdefault(memoryview(view).nbytes, []).append(i)
        for size, which in by_size.items():
            if one := self._sized(size):
                done = call(one, [block_key(keys[i]) for i in which], [views[i] for i in which])
                for i, ok in zip(which, done):
                    told[i] = ok
        return told

    def _exists(self, keys: Sequence[str]) -> list[bool]:
        names = [block_key(key) for key in keys]
        told = [False] * len(keys)
        for one in list(self._sets.values()):
            rest = [i for i, there in enumerate(told) if not there]
            for i, there in zip(rest, one.find([names[i] for i in rest])):
                told[i] = there
        return told

    def _delete(self, keys: Sequence[str]) -> list[bool]:
        """Returns, for each key, whether no set has its block any more."""
        names = [block_key(key) for key in keys]
        of_sets = [one.remove(names) for one in list(self._sets.values())]
        return [all(gone[i] for gone in of_sets) for i in range(len(keys))]
