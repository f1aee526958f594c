"""Sets of blocks for an engine's threads, shared by tern.sglang, tern.vllm_tier and tern.lmcache.

One thread at a time may use a set of blocks, so a Store keeps a few for each namespace, group and
size, and lends one to each call. No call blocks longer than its deadline, and none raises for a
failure of the daemon: if the daemon is gone, slow, full or busy, blocks count as "not there", and
the failure is counted. Only Settings.of and prepare raise, if the configuration is wrong.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias, Union

from .blocks import Blocks, Spans, Value
from .connection import Connection
from .errors import Busy, DaemonLost, Invalid, TernError
from .layout import Namespace

Size: TypeAlias = Union[int, str]

LIST_MAX = 4096  # keys of one call of libtern
KEY_MAX = 32
LOG_S = 60.0  # each kind of failure is logged at most once in this time
WRONG = ("INVALID", "MALFORMED", "UNSUPPORTED", "CONFLICT", "DENIED", "QUOTA")  # waiting does not help
log = logging.getLogger("tern.store")


class Paused(DaemonLost):
    """The daemon was not asked, because the store pauses or is closed."""

    kind = "PAUSED"


def block_key(name: str | bytes) -> bytes:
    """Returns the key of the block that an engine names `name`.

    A name of at most 32 bytes is the key itself. 64 lower-case hexadecimal digits, such as SGLang's
    hashes, give the 32 bytes that they encode. Any other name is hashed.
    """
    if isinstance(name, str):
        if len(name) == 2 * KEY_MAX and not name.strip("0123456789abcdef"):
            return bytes.fromhex(name)
        name = name.encode()
    return name if 0 < len(name) <= KEY_MAX else hashlib.blake2b(name, digest_size=KEY_MAX).digest()


def size(what: str, given: Size) -> int:
    """Returns the number of bytes, written as in ternd.yaml: digits, then K, M, G or T."""
    if not (found := re.fullmatch(r"([0-9]+)([KMGT]?)", str(given))):
        raise Invalid(f"{what} must be a number of bytes, such as 4294967296 or \"4G\", not {given!r}")
    return int(found[1]) << 10 * " KMGT".index(found[2] or " ")


@dataclass(frozen=True)
class Settings:
    """The settings of Tern in an engine's configuration, by these names.

    pool_bytes, host_bytes: bytes of a group's pool and of its host tier: a number, or a number with
        K, M, G or T behind it; or a mapping of these by group, if the engine has several groups
    sets_max: the most sets of one group that are open at a time; each set is a connection and an
        engine of the daemon
    find_ms, copy_ms: deadlines of a find, and of a get, a put and the opening of a set
    retry_s: pause after the daemon was lost or did not answer; until then all blocks count as "not
        there"
    hosts: the peers to ask for blocks that this host does not have. None: none; "any": all peers;
        or a peer's name
    """

    socket: str
    pool_bytes: Size | Mapping[str, Size]
    host_bytes: Size | Mapping[str, Size] = 0
    threads: int = 1
    populate: bool = False
    device: str | None = None
    sets_max: int = 3
    find_ms: int = 200
    copy_ms: int = 2000
    retry_s: float = 5.0
    hosts: str | None = None

    @classmethod
    def of(cls, given: object) -> Settings:
        names = [f.name for f in fields(cls)]
        if not isinstance(given, Mapping):
            raise Invalid(f"Tern's settings must be a mapping of {', '.join(names)}, not {given!r}")
        for name in given:
            if name not in names:
                raise Invalid(f"{name!r} is not a setting of Tern; the settings are {', '.join(names)}")
        for name in ("socket", "pool_bytes"):
            if name not in given:
                raise Invalid(f"Tern's settings need {name!r}")
        settings = cls(**given)
        for name in ("pool_bytes", "host_bytes"):
            sizes = getattr(settings, name)
            for group in sizes if isinstance(sizes, Mapping) else [""]:
                settings.bytes_of(group, name)
        for name in ("threads", "sets_max", "find_ms", "copy_ms"):
            if not isinstance(value := getattr(settings, name), int) or value < 1:
                raise Invalid(f"{name} must be a number of at least 1, not {value!r}")
        if settings.hosts is not None and (not isinstance(settings.hosts, str) or not settings.hosts):
            raise Invalid(f'hosts must be "any" or the name of a peer, not {settings.hosts!r}')
        return settings

    def bytes_of(self, group: str, name: str) -> int:
        given: Size | Mapping[str, Size] = getattr(self, name)
        if isinstance(given, (int, str)):
            return size(name, given)
        if group not in given:
            raise Invalid(f"{name} names {', '.join(given) or 'no group'}, and this engine has a group {group!r}, too")
        return size(f"{name} of {group}", given[group])


@dataclass
class StoreSet:
    """The blocks of one namespace, group and size, for any thread. Lists in results are by key."""

    store: Store
    namespace: Namespace
    group: str
    value_bytes: int
    _idle: list[Blocks] = field(default_factory=list)
    _opened: int = 0  # number of sets that are lent or idle
    _most: int = 0  # the most that there may be

    def __post_init__(self) -> None:
        self._most = self.store.settings.sets_max

    def find(self, keys: Sequence[bytes]) -> list[bool]:
        """Returns, for each key, whether its block is on some tier or peer."""
        ms = self.store.settings.find_ms
        return self._each("find", keys, ms, lambda b, a, z, ms: [p != "nowhere" for p in b.find(keys[a:z], deadline_ms=ms)])

    def front(self, keys: Sequence[bytes]) -> int:
        """Returns the number of keys before the first one whose block is nowhere."""
        there = self.find(keys)
        return there.index(False) if False in there else len(there)

    def get(self, keys: Sequence[bytes], values: Sequence[Value] | Spans) -> list[bool]:
        ms = self.store.settings.copy_ms
        return self._each("get", keys, ms, lambda b, a, z, ms: b.get(keys[a:z], values[a:z], deadline_ms=ms))

    def put(self, keys: Sequence[bytes], values: Sequence[Value] | Spans) -> list[bool]:
        ms = self.store.settings.copy_ms
        stored = self._each("put", keys, ms, lambda b, a, z, ms: b.put(keys[a:z], values[a:z], deadline_ms=ms))
        self.store.counts["keys not stored"] += stored.count(False)
        return stored

    def touch(self, keys: Sequence[bytes]) -> None:
        ms = self.store.settings.find_ms
        self._each("touch", keys, ms, lambda b, a, z, ms: [b.touch(keys[a:z], deadline_ms=ms) > 0] * (z - a))

    def remove(self, keys: Sequence[bytes]) -> list[bool]:
        """Returns, for each key, whether its block is nowhere now."""
        ms = self.store.settings.copy_ms
        return self._each("remove", keys, ms, lambda b, a, z, ms: [b.remove(keys[a:z], deadline_ms=ms) >= 0] * (z - a))

    def open(self) -> None:
        """Opens one set; with `populate`, which makes opening slow, all sets that may be open.

        Raises:
            TernError: the set cannot be opened.
        """
        of, taken = self.store.settings, []
        try:
            for _ in range(of.sets_max if of.populate else 1):
                taken.append(self._take(time.monotonic() + of.copy_ms / 1000))
        finally:
            for blocks in taken:
                self._give(blocks)

    def _each(
        self, what: str, keys: Sequence[bytes], ms: int, call: Callable[[Blocks, int, int, int], list[bool]]
    ) -> list[bool]:
        """Calls in pieces of LIST_MAX keys, with one deadline for all pieces."""
        end, done = time.monotonic() + ms / 1000, []
        for a in range(0, len(keys), LIST_MAX):
            z = min(a + LIST_MAX, len(keys))
            piece = self._call(what, end, lambda b, ms, a=a, z=z: call(b, a, z, ms))  # type: ignore[misc]
            done += piece if piece else [False] * (z - a)
        self.store.counts[f"{what} keys"] += len(keys)
        self.store.counts[f"{what} keys there"] += done.count(True)
        return done

    def _call(self, what: str, end: float, call: Callable[[Blocks, int], list[bool]]) -> list[bool]:
        blocks = None
        try:
            blocks = self._take(end)
            done = call(blocks, max(1, int((end - time.monotonic()) * 1000)))
            self.store.answered()
            return done
        except TernError as error:
            self.store.failed(what, error, blocks)
            return error.done
        finally:
            if blocks:
                self._give(blocks)

    def _take(self, end: float) -> Blocks:
        while not (blocks := self._idle_or_none(end)):
            try:
                return self._new(max(1, int((end - time.monotonic()) * 1000)))
            except TernError as error:
                if not self._fewer(error):
                    raise
        return blocks

    def _idle_or_none(self, end: float) -> Blocks | None:
        """Returns an idle set. None: the caller opens one, which is counted already."""
        with self.store.changed:
            self.store.check_pause()
            while not self._idle and self._opened >= self._most:
                if not self.store.changed.wait(end - time.monotonic()):
                    raise Busy(f"{self._opened} threads use {self.group!r} at once, which is the limit: raise sets_max")
            if self._idle:
                return self._idle.pop()
            self._opened += 1
            return None

    def _fewer(self, error: TernError) -> bool:
        """Handles a set that could not be opened. Returns True if the daemon admits no more sets:
        then callers share the open ones."""
        with self.store.changed:
            self._opened -= 1
            self.store.changed.notify()
            if self._opened and error.kind not in ("DAEMON_LOST", "TIMED_OUT"):
                self._most = self._opened
            else:
                self.store.pause()
                return False
        self.store.failed("open", error)
        return True

    def _new(self, deadline_ms: int) -> Blocks:
        of = self.store.settings
        blocks = Blocks(
            of.socket,
            namespace=self.namespace,
            group=self.group,
            value_bytes=self.value_bytes,
            pool_bytes=of.bytes_of(self.group, "pool_bytes"),
            host_bytes=of.bytes_of(self.group, "host_bytes"),
            threads=of.threads,
            populate=of.populate,
            device=of.device,
            hosts=of.hosts,
            deadline_ms=deadline_ms,
        )
        with self.store.changed:
            self.store.born[blocks] = self.store.generation
        return blocks

    def _give(self, blocks: Blocks) -> None:
        with self.store.changed:
            if keep := self.store.born[blocks] == self.store.generation:
                self._idle.append(blocks)
            else:
                del self.store.born[blocks]
                self._opened -= 1
            self.store.changed.notify()
        if not keep:
            blocks.close()

    def _forget(self) -> list[Blocks]:
        """Caller holds `changed`. A lent set is closed when it is returned to the store."""
        self._most = self.store.settings.sets_max
        idle, self._idle = self._idle, []
        self._opened -= len(idle)
        for blocks in idle:
            del self.store.born[blocks]
        return idle


class Store:
    """The sets of blocks of one engine process.

    Invariant: a set of blocks is lent to one call, idle in its StoreSet, or closed.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counts: Counter[str] = Counter()  # "find keys", "get DAEMON_LOST" ...
        self.changed = threading.Condition()  # guards the fields below, and the lists of the sets
        self.generation = 0  # of connections; a set of an older one is closed when it is returned
        self.born: dict[Blocks, int] = {}
        self._paused_until: float | None = None
        self._closed = False
        self._sets: dict[tuple[Namespace, str, int], StoreSet] = {}
        self._logged: dict[str, float] = {}

    def of(self, namespace: Namespace, group: str, value_bytes: int) -> StoreSet:
        with self.changed:
            return self._sets.setdefault(
                (namespace, group, value_bytes), StoreSet(self, namespace, group, value_bytes)
            )

    def prepare(self, namespace: Namespace, group: str, value_bytes: int) -> StoreSet:
        """Returns what of() returns, after opening one set. If the daemon does not answer now, a
        later call opens the set.

        Raises:
            TernError: the configuration is wrong.
        """
        made = self.of(namespace, group, value_bytes)
        try:
            made.open()
        except TernError as error:
            if error.kind in WRONG:
                raise
            self.failed("open", error)
        return made

    def reset(self) -> bool:
        """Removes all blocks of the namespaces and groups that were named to the store. Returns
        False if the daemon failed."""
        with self.changed:
            sets = {(one.namespace, one.group) for one in self._sets.values()}
        try:
            with Connection(self.settings.socket, deadline_ms=self.settings.copy_ms) as connection:
                connection.join(f"reset-{os.getpid()}-{os.urandom(8).hex()}", deadline_ms=self.settings.copy_ms)
                for ns, group in sets:
                    whole = replace(ns, salt=f"{group}/{ns.salt}")  # libtern's namespace of a set
                    connection.namespace_reset(whole, deadline_ms=self.settings.copy_ms)
        except TernError as error:
            self.failed("reset", error)
            return False
        return True

    def close(self) -> None:
        with self.changed:
            self._closed = True
            stale = self._next_generation()
        for blocks in stale:
            blocks.close()

    def _next_generation(self) -> list[Blocks]:
        """Caller holds `changed`, and closes the sets that this returns. A lent set is closed when
        it is returned."""
        self.generation += 1
        return [blocks for one in self._sets.values() for blocks in one._forget()]

    def check_pause(self) -> None:
        """Caller holds `changed`. Raises Paused during a pause. The first caller after a pause may
        ask the daemon; for the others another pause begins, which answered() ends."""
        if self._closed:
            raise Paused("the store is closed")
        if self._paused_until is None:
            return
        if (left := self._paused_until - time.monotonic()) > 0:
            raise Paused(f"the daemon was lost or did not answer: the next attempt is in {left:.1f} s")
        self.pause()

    def pause(self) -> None:
        self._paused_until = time.monotonic() + self.settings.retry_s

    def answered(self) -> None:
        self._paused_until = None

    def failed(self, what: str, error: TernError, blocks: Blocks | None = None) -> None:
        """Counts and logs a failure. Begins a pause if the daemon is lost or does not answer. A get
        or put that times out begins none: it may copy much, or load from the disk."""
        now, stale, name = time.monotonic(), [], f"{what} {error.kind}"
        with self.changed:
            self.counts[name] += 1
            if told := now - self._logged.get(name, -LOG_S) >= LOG_S:
                self._logged[name] = now
            if error.kind == "DAEMON_LOST" or (error.kind == "TIMED_OUT" and what not in ("get", "put")):
                self.pause()
            if error.kind == "DAEMON_LOST" and blocks and self.born[blocks] == self.generation:
                stale = self._next_generation()
        if told:
            log.warning("tern: %s of blocks: %s: %s (%d so far)", what, error.kind, error, self.counts[name])
        for one in stale:
            one.close()
