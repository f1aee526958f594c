"""Plays conversations through one daemon with a disk tier that is ended and killed again and again, and compares every
token and all logits with the model alone.

    TERN_BIN=build/bin TERN_LIBRARY=build/client/libtern.so python tests/engine_lm/spill.py --requests 200 --every 40

The daemon is restarted every so many requests, by SIGTERM and by SIGKILL in turns. The next one must have on its disk
whatever a store has acknowledged, and after a SIGTERM what memory held. At the end its files are damaged between two
starts: what is found then may be less, and must be right. Exits with 1 if anything differs or is not there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "client/python/tests")]

import numpy as np  # noqa: E402
import tern  # noqa: E402
from daemons import READY_S, Daemon, configured, run  # noqa: E402
from engine import GROUPS, PAGE, Counts, Sequence, within  # noqa: E402
from model import VOCABULARY, Alone, Floats, Model  # noqa: E402

MODEL_SEED = 19
AT_ONCE = 3
PREFIXES = (96, 224, 320, 448)  # tokens that many conversations begin with
TURNS = 3
POOL = 400 << 10  # room for the running requests, and little more
HOST = 256 << 10
BLOCK = 4096  # bytes that a disk writes at once
DAMAGED = 6  # starts after damage, each with so many requests and damaged places
DAMAGED_REQUESTS = 12
PLACES = 24
DOWN_S = 60
STORED, ENDED = "a store", "an orderly end"


class Lost(Exception):
    """Data that has to be on the disk is missing."""


# ---- expected results, by the model alone


@dataclass
class Told:
    """A sequence as the model alone computes it: its tokens and the logits of each."""

    alone: Alone
    tokens: list[int] = field(default_factory=list)
    logits: list[Floats] = field(default_factory=list)

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.logits.append(self.alone.append(token))

    def copy(self) -> Told:
        a = Alone(self.alone.model)
        a.kv, a.n, a.state, a.logits = self.alone.kv.copy(), self.alone.n, self.alone.state, self.alone.logits
        return Told(a, list(self.tokens), list(self.logits))


@dataclass
class Talk:
    """A conversation so far: `prompt` tokens are given, and the rest is the answer."""

    told: Told
    prompt: int = 0
    turns: int = 0

    def next_turn(self, rng: random.Random) -> None:
        for _ in range(rng.randrange(5, 60)):
            self.told.append(rng.randrange(VOCABULARY))
        self.prompt = len(self.told.tokens)
        for _ in range(rng.randrange(4, 24)):
            self.told.append(int(self.told.logits[-1].argmax()))
        self.turns += 1


# ---- what has to be on the disk


class Oracle:
    """Prefixes that have to be on the disk: acknowledged ones, for good; and those that memory had
    at an orderly end, until the next daemon runs on, since a longer prefix may replace one that was
    stored as a session grew (D5)."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, ...], str] = {}  # with the reason: STORED, ENDED

    def keep(self, tokens: list[int], depth: int, why: str) -> None:
        if depth:
            self.kept.setdefault(tuple(tokens[:depth]), why)

    def runs_on(self) -> None:
        self.kept = {tokens: why for tokens, why in self.kept.items() if why == STORED}

    def depth(self, tokens: list[int]) -> int:
        for depth in range(len(tokens) // PAGE * PAGE, 0, -PAGE):
            if tuple(tokens[:depth]) in self.kept:
                return depth
        return 0


def leaves(pool: tern.Pool, ns: tern.Namespace, talks: list[Talk]) -> list[tuple[list[int], int]]:
    """Returns what memory has on any tier: for each conversation that no other one continues, how
    deep it can be resumed. If the host has more of a path than the device, the end on the host is
    the one that is stored."""
    held = []
    for talk in talks:
        depths = pool.peek(ns, talk.told.tokens)
        resumable = max(depths.resumable, depths.host)
        held.append((talk.told.tokens[: max(depths.history, resumable)], resumable))
    inner = {tuple(t[:n]) for t, _ in held for n in range(PAGE, len(t), PAGE)}
    return [(tokens, resumable) for tokens, resumable in held if resumable and tuple(tokens) not in inner]


# ---- the engine


@dataclass
class Played(Counts):
    requests: int = 0
    again: int = 0  # requests that were lost with a killed daemon
    kills: int = 0
    terms: int = 0
    stores: int = 0  # stores that were acknowledged
    looked_at: int = 0  # prefixes that have to be on the disk, checked after a start
    lost: int = 0
    oracle_tokens: int = 0
    found_tokens: int = 0  # by the same matches
    disk_tokens: int = 0  # tokens that were fetched
    host_tokens: int = 0
    damage: int = 0
    not_taken: int = 0  # damaged parts that a start refused
    corrupt: int = 0  # fetches that ended with CORRUPT


class Engine:
    def __init__(self, model: Model, d: Daemon, ns: tern.Namespace, counts: Played, oracle: Oracle) -> None:
        self.model, self.ns, self.counts, self.oracle = model, ns, counts, oracle
        self.connection = tern.connect(d.socket)
        self.engine = self.connection.join("lm")
        self.pool = self.engine.open_pool(GROUPS, bytes=POOL, host_bytes=HOST)

    @property
    def last(self) -> int:
        return self.engine.last_step or tern.STEP_NONE

    def find(self, q: Sequence, prompt: list[int]) -> None:
        """Matches, and fetches the part that only the disk or the host tier has."""
        s, counts = q.s, self.counts
        for first in (True, False):
            found = s.match(prompt[:-1], step=self.last)
            q.took(found)
            if first:
                counts.oracle_tokens += (want := self.oracle.depth(prompt[:-1]))
                counts.found_tokens += (have := max(s.committed, found.disk_depth, found.host_depth))
                counts.lost += have < want
            disk = found.disk_depth > max(s.committed, found.host_depth)
            if not disk and found.host_depth <= s.committed:
                return
            before = s.committed
            try:
                for _, failed in within(self.engine, counts):
                    try:
                        q.took(s.fetch(tern.PEER_DISK if disk else None, step=self.last, deadline_ms=20000))
                    except (tern.Exhausted, tern.Busy) as why:
                        failed.append(why)
            except tern.Corrupt:
                counts.corrupt += 1
                s.abort(step=self.last)  # the next match finds what arrived, and does not offer the rest
                continue
            if disk:
                counts.disk_tokens += s.committed - before
            else:
                counts.host_tokens += s.committed - before
            return
        q.took(s.match(prompt[:-1], step=self.last) if s.allocated == 0 else s.extend())

    def play(self, talk: Talk, stores: bool) -> Generator[None, None, None]:
        """Runs one request, step by step."""
        tokens, prompt = talk.told.tokens, talk.told.tokens[: talk.prompt]
        with self.pool.session(self.ns) as s:
            q = Sequence(self.model, s, list(prompt))
            self.find(q, prompt)
            yield
            while q.n < len(tokens) - 1:
                upto = min((q.n // PAGE + 1) * PAGE, len(q.tokens))
                for _, failed in within(self.engine, self.counts):
                    try:
                        q.took(s.extend(allocated=upto))
                    except (tern.Exhausted, tern.Busy) as why:
                        failed.append(why)
                first = q.n
                with self.engine.step() as step:
                    logits = q.run_to(upto)
                    s.extend(append=q.tokens[s.tokens :], written=upto)
                    if upto % PAGE == 0:
                        s.apply(s.commit(upto, step=step).copies)
                self.judge(talk, first, logits)
                if q.n == len(q.tokens) and len(q.tokens) < len(tokens):
                    q.tokens.append(int(logits[-1].argmax()))
                yield
            self.counts.wrong += q.tokens != tokens
            if stores and s.committed:
                for _, failed in within(self.engine, self.counts):
                    try:
                        self.oracle.keep(tokens, s.store(s.committed, deadline_ms=20000).depth, STORED)
                    except tern.Busy as why:
                        failed.append(why)
                self.counts.stores += 1
            s.finish(s.written, step=self.last)
        self.counts.requests += 1

    def judge(self, talk: Talk, first: int, logits: list[Floats]) -> None:
        for at, got in enumerate(logits, first):
            self.counts.tokens += 1
            self.counts.wrong += not np.array_equal(got, talk.told.logits[at])

    def look_at_kept(self) -> None:
        """Checks just after a start: memory is empty, and the disk has all kept prefixes."""
        for tokens, why in self.oracle.kept.items():
            depths = self.pool.peek(self.ns, tokens)
            self.counts.looked_at += 1
            if depths.resumable or depths.disk < len(tokens):
                print(f"{len(tokens)} tokens were stored by {why}, {depths.disk} are found", file=sys.stderr)
                self.counts.lost += 1
        self.oracle.runs_on()


# ---- the daemon


def place(folder: Path, encrypted: bool) -> Path:
    here = folder / "host"
    (here / "spill").mkdir(parents=True)
    key = here / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(32))
    more = f"""page_bytes_min: 256
spill:
  dir: {here}/spill
  bytes: 512M
  headroom: 0
  threads: 2
  interval: 256
  align: 64
"""
    if encrypted:
        more += f"  encrypt_key_file: {key}\n"
    return configured(here, "memory: 4M, host_memory: 1M", more)


def ctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([Path(os.environ["TERN_BIN"]) / "ternctl", *words], capture_output=True, text=True)


def status(here: Path) -> Any:
    return json.loads(ctl("--socket", f"{here}/admin.sock", "status", "--json").stdout)


def verified(here: Path, encrypted: bool) -> bool:
    """Returns whether every extent on the disk can be read."""
    done = ctl("verify", f"{here}/spill", *(("--key", f"{here}/key") if encrypted else ()))
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
    return done.returncode == 0


def spoil(here: Path, rng: random.Random) -> int:
    """Damages files like a disk that tears a write, misdirects it, drops it, or lets bits rot."""
    files = sorted(here.glob("spill/*/*.tern"))
    for _ in range(PLACES):
        path, other = rng.choice(files), rng.choice(files)
        with path.open("r+b") as f, other.open("rb") as g:
            size = os.path.getsize(path)
            at = rng.randrange(size // BLOCK) * BLOCK
            f.seek(at)
            kind = rng.choice((0, 1, 2) + 7 * (3,))
            if kind == 0:
                f.truncate(at)
            elif kind == 1:
                g.seek(rng.randrange(os.path.getsize(other) // BLOCK + 1) * BLOCK)
                f.write(g.read(BLOCK * rng.randrange(1, 4)))
            elif kind == 2:
                f.write(bytes(min(size - at, BLOCK * rng.randrange(1, 4))))
            else:
                f.seek(at + rng.randrange(BLOCK))
                byte = f.read(1) or b"\0"
                f.seek(-len(byte), 1)
                f.write(bytes([byte[0] ^ 1 << rng.randrange(8)]))
        files = [p for p in files if os.path.getsize(p) >= BLOCK]
    return PLACES


# ---- a run


class Run:
    def __init__(self, o: argparse.Namespace, here: Path) -> None:
        self.rng, self.model, self.here, self.encrypted = random.Random(o.seed), Model(MODEL_SEED), here, o.encrypted
        self.counts, self.oracle = Played(), Oracle()
        self.ns = tern.Namespace(model="engine-lm", salt=str(o.seed))
        self.prefixes = [Told(Alone(self.model)) for _ in PREFIXES]
        for told, n in zip(self.prefixes, PREFIXES):
            for _ in range(n):
                told.append(self.rng.randrange(VOCABULARY))
        self.talks: list[Talk] = []
        self.playing: list[tuple[Talk, Generator[None, None, None]]] = []
        self.waiting: list[Talk] = []  # conversations that begin again
        self.start()

    def start(self) -> None:
        self.daemon = run(self.here, "host")
        self.engine = Engine(self.model, self.daemon, self.ns, self.counts, self.oracle)

    def next_talk(self) -> Talk:
        if self.waiting:
            return self.waiting.pop()
        busy = [t for t, _ in self.playing]
        open_ones = [t for t in self.talks if t.turns < TURNS and t not in busy]
        dice = self.rng.random()
        if open_ones and dice < 0.5:
            talk = self.rng.choice(open_ones)
            talk.next_turn(self.rng)
        elif self.talks and dice < 0.6 and (talk := self.rng.choice(self.talks)) not in busy:
            pass  # repeats the last turn
        else:
            talk = Talk(self.rng.choice(self.prefixes).copy())
            talk.next_turn(self.rng)
            self.talks.append(talk)
        return talk

    def iterate(self, begins: bool) -> None:
        if begins and len(self.playing) < AT_ONCE:
            talk = self.next_talk()
            self.playing.append((talk, self.engine.play(talk, self.rng.random() < 0.3)))
        for playing in list(self.playing):
            try:
                next(playing[1])
            except StopIteration:
                self.playing.remove(playing)

    def play(self, requests: int) -> None:
        """Plays so many further requests; some still run when it returns."""
        end = self.counts.requests + requests
        while self.counts.requests < end:
            self.iterate(True)

    def rest(self) -> None:
        while self.playing:
            self.iterate(False)
        if self.engine.engine.last_step:
            self.engine.connection.wait_published(self.engine.engine.last_step)

    def killed(self) -> None:
        """Kills the daemon at any instant of its stores, while requests run."""
        self.daemon.process.kill()
        self.daemon.process.wait(DOWN_S)
        for talk, request in self.playing:
            self.waiting.append(talk)
            self.counts.again += 1
            request.close()
        self.playing = []
        self.counts.kills += 1

    def ended(self) -> None:
        """Ends the daemon. The disk then has what memory had, if the daemon reports that it was in
        time."""
        self.rest()
        held = leaves(self.engine.pool, self.ns, self.talks)
        self.daemon.process.send_signal(signal.SIGTERM)
        if self.daemon.process.wait(DOWN_S) != 0:
            raise Lost("the daemon did not end well")
        if b"event=stored " in (self.here / "log").read_bytes():
            for tokens, depth in held:
                self.oracle.keep(tokens, depth, ENDED)
        self.counts.terms += 1

    def again(self) -> None:
        self.engine.connection.close()
        if not verified(self.here, self.encrypted):
            self.counts.lost += 1
        self.start()
        self.engine.look_at_kept()

    def damaged(self) -> None:
        self.rest()
        self.daemon.process.kill()
        self.daemon.process.wait(READY_S)
        self.engine.connection.close()
        self.oracle.kept.clear()
        self.counts.damage += spoil(self.here, self.rng)
        self.start()
        self.counts.not_taken += sum(status(self.here)["spill"]["recovery"]["faults"].values())
        self.play(DAMAGED_REQUESTS)


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--requests", type=int, default=200)
    args.add_argument("--every", type=int, default=40, help="requests between two restarts")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--encrypted", action="store_true")
    o = args.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        r = Run(o, place(Path(folder), o.encrypted))
        c = r.counts
        r.play(o.every)
        while c.requests < o.requests:
            if (c.terms + c.kills) % 2 == 0:
                r.ended()
            else:
                r.killed()
            r.again()
            r.play(o.every)
        r.rest()
        made_way = status(r.here)["tenants"][0]["spill"]["evicted"]
        wrong, seen = c.wrong, c.disk_tokens
        for _ in range(DAMAGED):
            r.damaged()
        r.rest()
        r.engine.connection.close()
        r.daemon.process.terminate()
        r.daemon.process.wait(DOWN_S)
    print(json.dumps({k: v for k, v in vars(c).items() if isinstance(v, int) and v}))
    bad = wrong + c.lost
    print(f"fault=30 runs={c.kills} injected={c.kills} violations={bad} stale_served={wrong} lost={c.lost}")
    served = c.wrong - wrong
    told = f"not_taken={c.not_taken} corrupt={c.corrupt}"
    print(f"fault=34 runs={DAMAGED} injected={c.damage} violations={served} wrong_bytes={served} {told}")
    held = c.wrong == 0 and c.lost == 0 and made_way == 0 and c.found_tokens >= c.oracle_tokens
    if 0 in (c.kills, c.terms, c.stores, c.looked_at, c.oracle_tokens, seen, c.not_taken + c.corrupt):
        print("nothing was killed, ended, stored, looked at, expected, fetched or found damaged", file=sys.stderr)
        held = False
    return 0 if held else 1


sys.exit(main())
