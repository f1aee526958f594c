"""An engine over Tern's Python package: the model's keys, values and state lie only in Tern's
pages.

Prefill runs on one daemon, in chunks, and commits each chunk. Decode runs on another, fetches the
chunks and continues: many requests at once, with one batch for the pages and one for the results in
each iteration, drafts that are mostly rejected, requests that are aborted and begin again, requests
that are retracted and recovered, and several turns.

Invariant: a page is written by the session that owns it, before its step is published. The state's
page holds the state of the written length at each commit, because the commit keeps it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import tern
from model import FULL, KV_SHAPE, STATE_SHAPE, WINDOW, Alone, Cache, Cached, Floats, Model
from numpy.typing import NDArray

PAGE = 16
REWIND = 8  # the most tokens that a rewind removes
GROUPS = [
    tern.Group("full", page_tokens=PAGE, shape=(PAGE, *KV_SHAPE)),
    tern.Group("sliding", page_tokens=PAGE, shape=(PAGE, *KV_SHAPE), family="window", window=WINDOW, reserve=REWIND),
    tern.Group("state", page_tokens=PAGE, shape=STATE_SHAPE, family="recurrent"),
]
KV_GROUPS = ("full", "sliding")
TRIES = 60_000  # of one request that has to wait, a millisecond apart


@dataclass
class Turn:
    """The expected result of one turn of a request, computed without Tern."""

    prompt: list[int]  # the whole conversation, this turn's new tokens last
    answer: list[int]
    logits: list[Floats]  # one for each position of prompt + answer


@dataclass
class Request:
    number: int
    turns: list[Turn]


def request_alone(model: Model, number: int, rng: random.Random, prefixes: list[list[int]]) -> Request:
    """Returns a conversation, and its results in one process without Tern."""
    sequence, turns = Alone(model), []
    tokens: list[int] = []
    logits: list[Floats] = []
    for turn in range(rng.choice((1, 1, 2, 3))):
        new = [rng.randrange(128) for _ in range(rng.randrange(3, 25))]
        tokens = tokens + (list(rng.choice(prefixes)) if turn == 0 else []) + new
        answer: list[int] = []
        wanted = rng.randrange(4, 20)
        while len(logits) < len(tokens) + wanted:
            if len(logits) == len(tokens) + len(answer):
                answer.append(int(logits[-1].argmax()))
            logits.append(sequence.append((tokens + answer)[len(logits)]))
        turns.append(Turn(tokens, answer, logits))
        tokens = tokens + answer
    return Request(number, turns)


@dataclass
class Sequence:
    """A session with the data that the model needs."""

    model: Model
    s: tern.Session
    tokens: list[int] = field(default_factory=list)
    n: int = 0  # tokens whose keys, values and state are in the pages

    def __post_init__(self) -> None:
        pool = self.s.pool
        self.pages: list[NDArray[np.float32]] = [pool.pages(g) for g in KV_GROUPS]
        self.states: NDArray[np.float32] = pool.pages("state")
        self.cache = Cache(self.write, self.read)

    def write(self, layer: int, position: int, kv: Cached) -> None:
        self.pages[layer][self.s.table(KV_GROUPS[layer])[position // PAGE], position % PAGE] = kv

    def read(self, layer: int, first: int, end: int) -> Cached:
        start = first // PAGE
        table = self.s.table(KV_GROUPS[layer])[start : (end - 1) // PAGE + 1]
        seen: Cached = self.pages[layer][table].reshape(-1, *KV_SHAPE)
        return seen[first - start * PAGE : end - start * PAGE]

    @property
    def state_page(self) -> Cached:
        page: Cached = self.states[self.s.table("state")[0]]
        return page

    def took(self, result: tern.Result) -> None:
        """Applies a result: makes its copies before the session continues, and zeroes a state that
        begins empty."""
        self.s.apply(result.copies)
        if result.written == 0 and result.allocated > 0:
            self.state_page[:] = 0
        self.n = result.written

    def compute(self, token: int, at: int, state: Cached) -> tuple[Floats, Cached]:
        return self.model.token(token, at, self.cache, state)

    def run_to(self, end: int) -> list[Floats]:
        """Computes the tokens [n, end) in order, and leaves their state in the page."""
        logits = []
        state = self.state_page.copy()
        for at in range(self.n, end):
            got, state = self.compute(self.tokens[at], at, state)
            logits.append(got)
        self.state_page[:] = state
        self.n = end
        return logits


@dataclass
class Handoff:
    """Times from the last chunk's step at prefill to decode's first token, in seconds."""

    done: float
    ticket: str = ""  # of a fetch by ticket; "": decode fetches by the tokens
    published: float = 0
    fetched: float = 0
    first_token: float = 0


@dataclass
class Counts:
    tokens: int = 0
    wrong: int = 0
    aborts: int = 0
    retracts: int = 0
    recovered: int = 0
    rejected: int = 0
    fetched: int = 0
    from_tail: int = 0  # tokens fetched by sessions that had written more than they had committed
    stayed: int = 0  # fetches of such sessions that were refused
    exhausted: int = 0
    busy: int = 0
    flips: int = 0
    caught: int = 0
    tickets: int = 0
    untaken: int = 0  # tickets that decode did not need, and that were dropped
    handoffs: list[Handoff] = field(default_factory=list)


def within(engine: tern.Engine, counts: Counts) -> Iterator[tuple[int, list[Exception]]]:
    """Yields tries of a request, as long as the daemon's error allows waiting: for t, failed in
    within(...)."""
    for t in range(TRIES):
        failed: list[Exception] = []
        yield t, failed
        if not failed:
            return
        why = failed[0]
        if isinstance(why, tern.Exhausted):
            counts.exhausted += 1
            if why.until_step:
                engine.connection.wait_published(why.until_step)
        elif isinstance(why, tern.Busy):
            counts.busy += 1
        else:
            raise why
        time.sleep(0.001)
    raise TimeoutError(f"told to wait {TRIES} times: {failed[0]}")


class Prefill:
    """One host's part: computes prompts in chunks and commits them to the tree."""

    def __init__(
        self, model: Model, pool: tern.Pool, counts: Counts, tickets: bool = False, follow: bool = False
    ) -> None:
        self.model, self.engine, self.pool, self.counts = model, pool.engine, pool, counts
        self.tickets, self.follow = tickets, follow

    def compute(self, q: Sequence, turn: Turn, upto: int) -> None:
        """Computes the tokens up to `upto`, and commits their whole chunks."""
        s = q.s
        for _, failed in within(self.engine, self.counts):
            try:
                q.took(s.extend(allocated=upto))
            except (tern.Exhausted, tern.Busy) as why:
                failed.append(why)
        first = q.n
        with self.engine.step() as step:
            logits = q.run_to(upto)
            s.extend(written=upto)
            copies = s.commit(upto, step=step).copies if upto % PAGE == 0 else []
        s.apply(copies)
        self.counts.wrong += sum(not np.array_equal(a, b) for a, b in zip(logits, turn.logits[first:upto]))

    def hand_over(self, q: Sequence, turn: Turn) -> str:
        """Hands over all but the prompt's last token, with the model's last output."""
        for _, failed in within(self.engine, self.counts):
            try:
                blob = turn.logits[q.n - 1].tobytes()
                ticket = q.s.hand_over(step=self.engine.last_step or tern.STEP_NONE, blob=blob)
            except tern.Busy as why:
                failed.append(why)
        self.counts.tickets += 1
        return ticket.text

    def compute_all(self, q: Sequence, turn: Turn, end: int, rng: random.Random) -> Handoff | None:
        """Computes chunk by chunk, then the rest of the prompt. Returns None if all was there
        already."""
        handoff = None
        while q.n < end:
            whole = min((q.n // PAGE + rng.randrange(1, 4)) * PAGE, end // PAGE * PAGE)
            self.compute(q, turn, whole if whole > q.n else end)
            handoff = Handoff(time.perf_counter())
        return handoff

    @contextmanager
    def run(self, ns: tern.Namespace, turn: Turn, rng: random.Random) -> Iterator[Handoff | None]:
        """Computes the prompt except its last token: whole chunks, and keeps them until the caller
        has fetched them; or all of it, and hands it over. At the yield they may not be published
        yet. Yields None if nothing had to be computed."""
        n = len(turn.prompt) - 1
        end = n if self.tickets else n // PAGE * PAGE
        with self.pool.session(ns) as s:
            q = Sequence(self.model, s, turn.prompt)
            q.took(s.match(turn.prompt[:end], step=self.engine.last_step or tern.STEP_NONE))
            handoff = self.compute_all(q, turn, end, rng)
            if self.tickets:
                handoff = handoff or Handoff(time.perf_counter())
                handoff.ticket = self.hand_over(q, turn)
            yield handoff

    def followed(
        self, ns: tern.Namespace, turn: Turn, rng: random.Random, follow: Callable[[Handoff], bool]
    ) -> None:
        """Does the same while `follow` fetches in a thread of its own, by a ticket that exists
        before anything is computed. `follow` returns whether it used the ticket."""
        with self.pool.session(ns) as s, ThreadPoolExecutor(1) as beside:
            q = Sequence(self.model, s, turn.prompt)
            q.took(s.match(turn.prompt[:-1], step=self.engine.last_step or tern.STEP_NONE))
            handoff = Handoff(time.perf_counter(), ticket=s.ticket_open().text)
            took = beside.submit(follow, handoff)
            self.compute_all(q, turn, len(turn.prompt) - 1, rng)
            handoff.done = time.perf_counter()
            self.hand_over(q, turn)
            if not took.result():
                self.drop(handoff.ticket)

    def drop(self, ticket: str) -> None:
        """Drops a ticket that decode does not need."""
        self.engine.connection.ticket_drop(ticket)
        self.counts.untaken += 1


@dataclass
class Running:
    request: Request
    q: Sequence
    turn: int = 0
    away: int = 0  # iterations until it comes back; 0: it is not away
    begins: bool = False  # its next turn has to begin
    handoff: Handoff | None = None  # until its first token

    @property
    def now(self) -> Turn:
        return self.request.turns[self.turn]

    @property
    def whole(self) -> list[int]:
        return self.now.prompt + self.now.answer


class Decode:
    """The other host's part: many requests at once."""

    def __init__(
        self,
        model: Model,
        pool: tern.Pool,
        peer: str,
        counts: Counts,
        rng: random.Random,
        host_tier: bool,
        prefill: Prefill,
        ns: tern.Namespace,
    ) -> None:
        self.model, self.engine, self.pool, self.peer = model, pool.engine, pool, peer
        self.prefill, self.ns = prefill, ns
        self.counts, self.rng = counts, rng
        self.running: list[Running] = []
        self.modes = ("host", "drop") if host_tier else ("drop",)
        self.batch = pool.engine.batch()

    @property
    def last(self) -> int:
        return self.engine.last_step or tern.STEP_NONE

    def admit(self, request: Request) -> Running:
        r = Running(request, Sequence(self.model, self.pool.session(self.ns)))
        self.running.append(r)
        return r

    def turn(self, r: Running, measured: Callable[[Handoff], None] | None = None) -> None:
        """Has prefill compute what this turn needs, and begins it here. `measured` gets the
        hand-over of a first turn."""

        def follow(handoff: Handoff) -> bool:
            r.handoff = handoff if measured else None
            return self.begin(r, handoff.ticket)

        if self.prefill.follow:
            self.prefill.followed(self.ns, r.now, self.rng, follow)
            return
        with self.prefill.run(self.ns, r.now, self.rng) as handoff:
            if handoff and measured:
                measured(handoff)
                r.handoff = handoff
            ticket = handoff.ticket if handoff else ""
            if not self.begin(r, ticket) and ticket:
                self.prefill.drop(ticket)

    def fetch(self, r: Running, ticket: str) -> None:
        end = (len(r.now.prompt) - 1) // PAGE * PAGE
        if not ticket:
            r.q.took(r.q.s.fetch(self.peer, step=self.last, at_least=end, depth=end, deadline_ms=20000))
            return
        fetch = r.q.s.fetch_follow if self.prefill.follow else r.q.s.fetch_ticket
        result = fetch(ticket, step=self.last, deadline_ms=20000)
        r.q.took(result)
        self.counts.wrong += r.q.n != len(r.now.prompt) - 1
        self.counts.wrong += result.blob != r.now.logits[r.q.n - 1].tobytes()

    def begin(self, r: Running, ticket: str) -> bool:
        """Matches this turn's prompt except its last token, which gives the first logits. Returns
        True if something was fetched."""
        r.q.tokens = list(r.now.prompt)
        r.q.took(r.q.s.match(r.now.prompt[:-1], step=self.last))
        n, stayed = len(r.now.prompt) - 1, False
        end = n if ticket else n // PAGE * PAGE
        if r.q.n >= end:
            return False
        before, had = r.q.s.committed, r.q.n
        for _, failed in within(self.engine, self.counts):
            try:
                self.fetch(r, ticket)
            except (tern.Exhausted, tern.Busy) as why:
                failed.append(why)
                self.make_way(r)
            except tern.Invalid:
                if r.turn == 0:
                    raise
                stayed = True  # the state of its committed length is gone: this host computes the prompt
        self.counts.stayed += stayed
        self.counts.fetched += r.q.s.committed - before
        self.counts.from_tail += r.q.s.committed - before if had > before else 0
        if r.handoff:
            r.handoff.fetched = time.perf_counter()
        return not stayed

    # ---- room for other requests

    def make_way(self, spared: Running) -> None:
        """Pages ran out: retracts another request or, if there is none, aborts one that is away."""
        here = [r for r in self.running if r is not spared and not r.away and r.q.s.allocated]
        away = [r for r in self.running if r is not spared and r.away and r.q.n >= 0]
        if here:
            self.retract(here[-1])
        elif away:
            self.begin_again(away[-1], stay_away=True)

    def retract(self, r: Running) -> None:
        try:
            r.q.s.retract(self.rng.choice(self.modes), step=self.last)
            r.away = self.rng.randrange(1, 6)
            self.counts.retracts += 1
        except (tern.Invalid, tern.Exhausted, tern.Busy):
            self.begin_again(r, stay_away=True)

    def begin_again(self, r: Running, stay_away: bool = False) -> None:
        """Aborts the turn; the session finds again what it and others have committed."""
        r.q.s.abort(step=self.last)
        self.counts.aborts += 1
        r.away = self.rng.randrange(1, 6) if stay_away else 0
        r.q.n = -1

    def come_back(self, r: Running) -> bool:
        try:
            if r.q.n < 0:
                # A session whose turn had ended keeps its tokens after an abort; a new match
                # continues from them.
                r.q.took(r.q.s.match(r.now.prompt[:-1], step=self.last))
                r.q.tokens = list(r.now.prompt)
            else:
                r.q.took(r.q.s.recover(deadline_ms=20000))
                self.counts.recovered += 1
            return True
        except (tern.Exhausted, tern.Busy) as why:
            self.wait(why)
            if all(other.away for other in self.running):
                self.make_way(r)  # no other request will make room by ending
        except tern.Corrupt:
            self.begin_again(r, stay_away=True)
        return False

    def wait(self, why: tern.Exhausted | tern.Busy) -> None:
        if isinstance(why, tern.Exhausted):
            self.counts.exhausted += 1
            if why.until_step:
                self.engine.connection.wait_published(why.until_step)
        else:
            self.counts.busy += 1
            time.sleep(0.001)

    # ---- one iteration

    def iterate(self, flip: bool) -> list[Running]:
        """Runs one step of all requests that are not away. Returns the requests that ended."""
        for r in self.running:
            if r.away:
                r.away -= 1
                if r.away == 0 and not self.come_back(r):
                    r.away = 1
            if r.begins and not r.away:
                r.begins = False
                self.turn(r)  # it keeps the last answer's tail, or fetches a longer prefix
        chosen = self.room([r for r in self.running if not r.away])
        with self.engine.step() as step:
            for r in chosen:
                if flip:
                    self.flip(r)
                self.advance(r, step)
            for op in self.batch.run():
                if op.error or not op.result:
                    raise op.error or RuntimeError("an operation was not tried")
                op.session.apply(op.result.copies)
        ended = [r for r in chosen if self.turn_ends(r)]
        dice = self.rng.random()
        if dice < 0.03 and self.running:
            r = self.rng.choice(self.running)
            if not r.away and r not in ended:
                self.begin_again(r, stay_away=True)
        elif dice < 0.08 and self.running:
            r = self.rng.choice(self.running)
            if not r.away and r not in ended and r.q.s.allocated:
                self.retract(r)
        for r in ended:
            self.running.remove(r)
        return ended

    def room(self, here: list[Running]) -> list[Running]:
        """Returns the requests that have pages for this iteration, with up to REWIND - 1 draft
        tokens."""
        short = [(r, w) for r in here if (w := min(len(r.whole), r.q.n + REWIND)) > r.q.s.allocated]
        for r, want in short:
            self.batch.extend(r.q.s, allocated=want)
        answered = [(r, op) for (r, _), op in zip(short, self.batch.run())]
        for r, op in answered:
            if op.result:
                r.q.took(op.result)
        for r, op in answered:  # a second loop, since a retracted request loses the pages that it got
            if isinstance(op.error, tern.Exhausted | tern.Busy):
                here.remove(r)
                self.wait(op.error)
                self.make_way(r)
            elif not op.result:
                raise op.error or RuntimeError("an operation was not tried")
        return [r for r in here if not r.away]  # room for one request may have cost another's

    def draft(self, r: Running) -> list[int]:
        """Returns tokens that may follow: often the right ones, often not."""
        right = r.whole[len(r.q.tokens) :]
        guess = [t if self.rng.random() < 0.6 else self.rng.randrange(128) for t in right]
        return guess[: self.rng.randrange(0, 5)]

    def advance(self, r: Running, step: int) -> None:
        """Computes known tokens, and drafts behind them; drafts that the model would not have
        chosen are rewound. An iteration ends at a page's end, since the state there is
        committed."""
        q, s = r.q, r.q.s
        boundary = (q.n // PAGE + 1) * PAGE
        known = min(len(q.tokens), boundary, s.allocated)
        drafts = self.draft(r) if known == len(q.tokens) else []
        drafts = drafts[: max(0, min(boundary, s.allocated) - known)]
        state, states, told = q.state_page.copy(), [], []
        for at, token in enumerate((q.tokens + drafts)[q.n : known + len(drafts)], q.n):
            logits, state = q.compute(token, at, state)
            states.append(state)
            told.append(logits)
        good = known
        while good < known + len(drafts) and int(told[good - 1 - q.n].argmax()) == drafts[good - known]:
            good += 1
        self.counts.rejected += known + len(drafts) - good
        self.judge(r, told[: good - q.n])
        q.tokens += drafts[: good - known]
        q.state_page[:] = states[good - 1 - q.n]
        if good == len(q.tokens) and len(q.tokens) < len(r.whole):
            q.tokens.append(int(told[good - 1 - q.n].argmax()))
            if r.handoff:
                r.handoff.first_token = time.perf_counter()
                self.counts.handoffs.append(r.handoff)
                r.handoff = None
        q.n = good
        self.batch.extend(s, append=q.tokens[s.tokens :], written=q.n)
        if good % PAGE == 0:
            self.batch.commit(s, good, step=step)
        elif drafts and self.rng.random() < 0.5:
            self.batch.rewind(s, max(q.n, min(len(q.tokens), s.allocated)), step=step)

    def judge(self, r: Running, told: list[Floats]) -> None:
        for at, logits in enumerate(told, r.q.n):
            self.counts.tokens += 1
            self.counts.wrong += not np.array_equal(logits, r.now.logits[at])

    def turn_ends(self, r: Running) -> bool:
        """Returns True if that was the last turn, and the session is closed."""
        if r.q.tokens != r.whole or r.q.n < len(r.whole) - 1:
            return False
        self.counts.wrong += r.q.tokens[len(r.now.prompt) :] != r.now.answer
        if r.turn + 1 == len(r.request.turns):
            r.q.s.close(step=self.last)
            return True
        r.q.s.finish(r.q.n, step=self.last)
        r.turn += 1
        r.begins = True
        return False

    # ---- damage

    def flip(self, r: Running) -> None:
        """Flips one byte that the next token needs for a moment; its logits must show it. Pages may
        be shared: no other request computes meanwhile, this pool has no host tier, and no daemon
        fetches from it."""
        q, at = r.q, r.q.n
        if at == 0 or at >= len(q.tokens) or at >= r.q.s.allocated:
            return
        kind = self.rng.randrange(3)
        if kind == 2:
            target = q.state_page
        else:
            first = 0 if kind == FULL else max(0, at + 1 - WINDOW)
            position = self.rng.randrange(first, at)
            target = q.pages[kind][q.s.table(KV_GROUPS[kind])[position // PAGE], position % PAGE]
        bytes_of = target.view(np.uint8).reshape(-1)
        place, bit = self.rng.randrange(target.nbytes), 1 << self.rng.randrange(8)
        bytes_of[place] ^= bit
        with np.errstate(all="ignore"):
            logits, _ = q.compute(q.tokens[at], at, q.state_page)
        bytes_of[place] ^= bit
        self.counts.flips += 1
        self.counts.caught += not np.array_equal(logits, r.now.logits[at])
