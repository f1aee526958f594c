"""The scheduler's side: sessions of requests, what Tern has of a prompt, what is saved, and when
pages are freed.

A request has one session, from vLLM's first question about it to its end. The match pins what Tern
has of the prompt, extends allocate pages for what vLLM computes, and commits publish whole blocks.
Each page that the worker touches is named in the work of a numbered step, and a session is closed
at the last of these steps. So it can be closed whenever vLLM drops the request: no page is used
again before the worker has passed that step.

A block is committed when its save was reported, which is when vLLM has the step's output: blocks of
a step that failed are never published.

When the daemon is lost, all sessions are lost. Running requests and new ones then run without Tern,
until the worker has joined a daemon that is back.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from .._lib import STEP_NONE
from ..connection import Pool
from ..errors import Busy, DaemonLost, Exhausted, Gone, Quota, TernError, TimedOut
from ..layout import Namespace
from ..session import Session
from .fetches import Fetch, Fetches
from .handing import Handed, handed, wants_hand_over
from .jobs import Joined, Move, Work
from .pages import RESERVE, Layout
from .settings import LOGGER

log = logging.getLogger(LOGGER)

_T = TypeVar("_T")

Blocks = Sequence[Sequence[int]]  # by group, vLLM's block table of a request

GATHER_S = 30.0  # limit for all ranks to join anew, from the first one on
CALL_MS = 2000  # deadline of each call except a reset: vLLM's steps wait for it
LATE_S = 10.0  # after a call that was not answered, no call is made for so long
PING_S = 5.0  # interval of pings while a fetch is under way
CLOSE_AGAIN_S = 1.0  # pause before a close that failed is repeated
CLOSING_MAX = 256  # closes that wait to be repeated; with so many, no session is begun
SPACES_MAX = 1 << 16  # namespaces that one instance uses until a reset, which forgets them all

COMPLETE = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")  # the output of the last step has arrived


class Request(Protocol):
    """The part of vLLM's Request that is used."""

    request_id: str
    cache_salt: str | None
    lora_request: Any
    prompt_embeds: Any

    kv_transfer_params: dict[str, Any] | None
    skip_reading_prefix_cache: bool
    status: Any

    @property
    def all_token_ids(self) -> Sequence[int]: ...
    @property
    def mm_features(self) -> Sequence[object]: ...
    @property
    def num_tokens(self) -> int: ...


@dataclass
class Counts:
    """Counts of requests since the start.

    queried, matched: tokens that vLLM asked for, and those of them that are loaded
    recomputed: tokens that a load or a ticket was expected to supply and did not
    full: saves that found no room in the pool; the request's next save tries again
    failed: loads that failed; their tokens were computed
    fetched, unfetched: tickets that were used up, and tickets that failed
    lost, rejoined: how often the daemon was lost, and how often it was joined again
    refused: other calls that the daemon refused; the requests ran without Tern
    """

    queried: int = 0
    matched: int = 0
    recomputed: int = 0
    full: int = 0
    failed: int = 0
    fetched: int = 0
    unfetched: int = 0
    lost: int = 0
    rejoined: int = 0
    refused: int = 0


@dataclass
class Kept:
    """A request of vLLM and its session.

    local: tokens that vLLM had itself when it asked
    saved: tokens whose blocks Tern has, or will have when the worker has saved them
    tried: tokens for whose blocks there was no room; the save of the next block tries again
    last_step: the last step whose work names pages of the session
    pending: number of saves that were not reported yet
    ended: vLLM has dropped the request, or it continues without Tern; the session ends with the
        last report
    fetch: the fetch of a ticket under way
    handed: tokens that the ticket has
    bringing: tokens of its load
    """

    request: Request
    session: Session
    local: int = 0
    saved: int = 0
    tried: int = 0
    last_step: int = 0
    pending: int = 0
    ended: bool = False
    fetch: Fetch | None = None
    handed: int = 0
    bringing: int = 0


@dataclass
class Scheduler:
    """Owns the sessions of all requests and decides what each step loads and saves.

    namespace: returns that of a request; for None, that of requests without adapter and salt
    follow: joins the daemon that the workers have joined anew, and maps the pool of that handle
    """

    pool: Pool
    layout: Layout
    namespace: Callable[[Request | None], Namespace]
    follow: Callable[[int], Pool]
    counts: Counts = field(default_factory=Counts)
    fetches: Fetches = field(init=False)
    _kept: dict[str, Kept] = field(default_factory=dict)
    _without: set[str] = field(default_factory=set)  # requests refused, or whose load failed
    _pending: dict[int, list[tuple[Kept, int]]] = field(default_factory=dict)  # by step: its commits
    _loads: list[Move] = field(default_factory=list)
    _loading: list[Kept] = field(default_factory=list)
    _closing: deque[tuple[Session, int]] = field(default_factory=deque)  # closes that failed, with their step
    _close_at: float = 0.0  # when they are repeated
    _late_until: float = 0.0  # the daemon did not answer: no call before this time
    _ping_at: float = 0.0
    _step: int = 0
    _made: Counter[int] = field(default_factory=Counter)  # by step: number of ranks that have made its saves
    _lives: list[int] = field(init=False)  # by rank: its worker's life
    _joined: dict[int, Joined] = field(default_factory=dict)  # ranks that have joined anew before the others
    _joined_at: float = 0.0  # when the first of them joined
    _lost: bool = False
    _spaces: set[Namespace] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.fetches = Fetches(self.pool.connection)
        self._lives = [0] * self.layout.ranks

    @property
    def block(self) -> int:
        return self.layout.align

    # ---- before a request is scheduled

    def matched(self, request: Request, local: int) -> int | None:
        """Returns how many tokens behind the `local` ones Tern loads; None while a fetch from
        another host is under way.

        The last token of a prompt is computed, as with vLLM's own cache. vLLM asks again while a
        request waits, and after it was preempted: then its session has what it had saved.
        """
        kept = self._kept.get(request.request_id)
        if request.request_id in self._without:
            return 0
        if kept is None:
            kept = self._begin(request)
            if kept is None:
                return 0
            self.counts.queried += request.num_tokens - local
        kept.local = local
        if kept.fetch is not None and not self._fetched(kept):
            return None
        if self._lost or kept.ended or request.skip_reading_prefix_cache:
            return 0
        return max(kept.saved - local, 0) if kept.saved < request.num_tokens else 0

    def allocated(self, request: Request, blocks: Blocks, external: int) -> None:
        """Queues the load of `external` tokens: vLLM has assigned blocks to the request."""
        kept = self._kept.get(request.request_id)
        if kept is None:
            return
        if external:
            last = kept.local + external
            self._loads.append(self._move(kept, blocks, (kept.local, last), last))
            self._loading.append(kept)
            kept.bringing = external
            self.counts.matched += external

    # ---- a step

    def work(self, scheduled: Mapping[str, tuple[int, int]], blocks: Callable[[str], Blocks | None]) -> Work:
        """Returns the work of this step.

        Args:
            scheduled: for each request, how many of its tokens are computed at the step's begin and
                at its end.
            blocks: returns the request's block table, by group.
        """
        self._look()
        work = Work(self.pool.handle, loads=self._loads)
        saving = []
        for name, (start, end) in scheduled.items():
            kept = self._kept.get(name)
            if kept is not None and (table := blocks(name)) is not None:
                depth = self._whole(kept, end)
                at = self.layout.whole_from(kept.saved, start, depth)
                if depth > max(kept.saved, kept.tried) and self._extend(kept, depth, at):
                    if (move := self._save(kept, table, depth, max(at, start))) is not None:
                        work.saves.append(move)
                        saving.append((kept, depth))
        if self._lost:
            work.rejoin, work.saves, saving = self._rejoining(), [], []
        if work.loads or work.saves:
            self._step += 1
            work.step = self._step
            for kept in self._loading:
                kept.last_step = work.step
            for kept, depth in saving:
                kept.saved, kept.last_step = depth, work.step
                kept.pending += 1
            self._pending[work.step] = saving
        self._loads, self._loading = [], []
        return work

    def reported(self, saved: Iterable[int], failed: Iterable[str], joined: Iterable[Joined] = ()) -> None:
        """Handles the workers' report.

        Args:
            saved: steps whose saves are made, once for each rank.
            failed: requests whose load failed at a rank.
            joined: workers that have joined the daemon anew.
        """
        for step in saved:
            self._made[step] += 1
            if self._made[step] == self.layout.ranks:
                del self._made[step]
                for kept, depth in self._pending.pop(step, []):
                    self._commit(kept, depth, step)
        for name in failed:
            self.counts.failed += 1
            if (of_it := self._kept.get(name)) is not None:  # None: its session has ended
                self.counts.recomputed += of_it.bringing
                self._without.add(name)
        for one in joined:
            self._join(one)

    # ---- the end of a request

    def finished(self, request: Request) -> dict[str, Any] | None:
        """Ends a request. Returns the parameters for a decode instance if the request asked for a
        hand-over."""
        name = request.request_id
        handed_over = None
        if wants_hand_over(request.kv_transfer_params) and request.status.name in COMPLETE:
            handed_over = self._hand_over(name)
        if (kept := self._kept.get(name)) is not None:
            self._end(kept)
        self._without.discard(name)
        return handed_over.params() if handed_over else None

    def reset(self) -> bool:
        """Resets the namespaces that this instance has used, and the one without adapters and
        salts, which an earlier instance may have used. Returns whether the daemon did so.

        Sessions keep what they matched before, so they end too: a request that comes again begins
        anew, and a running request is no longer saved.
        """
        self._late_until = 0.0  # the caller of a reset waits for it
        forgotten = all([self._forget(ns) for ns in {self.namespace(None), *self._spaces}])
        for kept in list(self._kept.values()):
            self._end(kept)
        if forgotten:
            self._spaces.clear()
        return forgotten

    # ---- inside

    def _hand_over(self, name: str) -> Handed | None:
        """Commits what the request's last step saved, since vLLM has its output, and hands over."""
        kept = self._kept.get(name)
        if kept is None or not kept.saved:
            return None
        for step, commits in sorted(self._pending.items()):
            for one, depth in commits:
                if one is kept:
                    self._do("a commit", lambda: kept.session.commit(depth, step=step, deadline_ms=CALL_MS))
        last = kept.last_step or STEP_NONE
        ticket = self._do("a ticket", lambda: kept.session.hand_over(step=last, deadline_ms=CALL_MS))
        return Handed(ticket.text, kept.saved) if ticket else None

    # ---- the daemon is lost and joined again

    def _look(self) -> None:
        """Before each step: detects a lost daemon, and repeats the closes that failed."""
        self.fetches.poll()
        if self.fetches.lost and not self._lost:
            self._lose("a step", "the connection has ended")
        if self.fetches.waiting and time.monotonic() >= self._ping_at:
            self._ping_at = time.monotonic() + PING_S
            self._do("a ping", lambda: self.pool.connection.ping(deadline_ms=CALL_MS))
        while self._closing and not self._lost and time.monotonic() >= self._close_at:
            self._close(*self._closing.popleft())

    def _lose(self, what: str, why: object) -> None:
        """Ends all sessions, as the daemon has. This step's loads are still made: their pages are
        mapped."""
        self._lost = True
        self.counts.lost += 1
        for kept in self._kept.values():
            if kept.fetch is not None:
                self._unfetched(kept, why)
        for kept_by in (self._kept, self._pending, self._closing, self._without):
            kept_by.clear()
        self.pool.connection.close()
        log.error("tern: %s: %s. Requests run without Tern until the daemon is back", what, why)

    def _rejoining(self) -> dict[int, int]:
        """Returns the ranks that are to join anew, with their lives. Ranks that have joined are
        asked
        again if others take long: the daemon may have ended meanwhile."""
        if self._joined and time.monotonic() > self._joined_at + GATHER_S:
            self._joined.clear()
        return {rank: life for rank, life in enumerate(self._lives) if rank not in self._joined}

    def _join(self, one: Joined) -> None:
        """Joins the daemon once all ranks have. If that fails, the ranks are asked to join
        again."""
        self._lives[one.rank] = one.life
        if not self._joined:
            self._joined_at = time.monotonic()
        self._joined[one.rank] = one
        if len(self._joined) < self.layout.ranks:
            return
        pools = {joined.pool for joined in self._joined.values()}
        self._joined.clear()
        if len(pools) > 1:
            log.warning("tern: the daemon has restarted, and the ranks have joined it again")
            return
        try:
            self.pool = self.follow(one.pool)
        except TernError as why:
            log.warning("tern: this scheduler could not join the daemon again: %s: %s", why.kind, why)
            return
        self.fetches, self._lost, self._late_until = Fetches(self.pool.connection), False, 0.0
        self.counts.rejoined += 1
        log.info("tern: the daemon is back, with pool %x", self.pool.handle)

    def _do(self, what: str, call: Callable[[], _T], kept: Kept | None = None) -> _T | None:
        """Makes a call of Tern; returns None if it was refused.

        A refusal fails no request: it is counted and logged, and vLLM computes the tokens. `kept`:
        the request whose session ends if it cannot continue. A call that was not answered may have
        taken effect all the same, and then the session's pages are not those of its table here.
        """
        if self._lost or self._late():
            return None
        try:
            return call()
        except DaemonLost as why:
            self._lose(what, why)
        except Exhausted:
            self.counts.full += 1
        except TernError as why:
            self.counts.refused += 1
            log.warning("tern: %s was refused: %s: %s", what, why.kind, why)
            if isinstance(why, TimedOut):
                self._late_until = time.monotonic() + LATE_S
                log.warning("tern: the daemon does not answer: for %.0f s requests run without Tern", LATE_S)
            if kept is not None and not isinstance(why, Busy | Quota):
                self._end(kept)
        return None

    def _late(self) -> bool:
        return time.monotonic() < self._late_until

    # ---- the sessions of requests

    def _begin(self, request: Request) -> Kept | None:
        if request.mm_features or request.prompt_embeds is not None:
            return None  # the content of such a token is no part of a prefix
        ns = self.namespace(request)
        if why := self._too_many(ns):
            self.counts.refused += 1
            self._without.add(request.request_id)
            log.warning("tern: request %s runs without Tern: %s", request.request_id, why)
            return None
        if self._lost or self._late():
            return None
        told = self._handed(request)
        tokens = list(request.all_token_ids)[: told.tokens if told else -1]  # vLLM computes the last one
        session = self._do("a session", lambda: self.pool.session(ns, deadline_ms=CALL_MS))
        matched = session and self._do("a match", lambda: session.match(tokens, deadline_ms=CALL_MS))
        if session is None or matched is None:
            if session is not None:
                self._close(session, STEP_NONE)
            if not self._lost:
                self._without.add(request.request_id)  # else vLLM would ask again in each step
            return None
        self._spaces.add(ns)
        kept = self._kept[request.request_id] = Kept(request, session, saved=session.written)
        if told:  # even if nothing is missing: that uses the ticket up, and its host frees the pages
            kept.handed = told.tokens
            kept.fetch = self.fetches.begin(session, told.ticket)
        return kept

    def _too_many(self, ns: Namespace) -> str:
        """Returns why no session is begun; "": one may be."""
        if len(self._closing) >= CLOSING_MAX:
            return f"{CLOSING_MAX} sessions wait for their close to be repeated"
        if ns not in self._spaces and len(self._spaces) >= SPACES_MAX:
            return f"salts and adapters have made {SPACES_MAX} names: reset the cache, which forgets them"
        return ""

    def _handed(self, request: Request) -> Handed | None:
        try:
            told = handed(request.kv_transfer_params, self.block, request.num_tokens)
        except ValueError as why:
            self.counts.refused += 1
            log.warning("tern: request %s is computed: %s", request.request_id, why)
            return None
        if told and request.skip_reading_prefix_cache:  # vLLM would not wait for the fetch
            self.counts.unfetched += 1
            log.info("tern: request %s does not use its ticket: its whole prompt is computed", request.request_id)
            return None
        return told

    def _fetched(self, kept: Kept) -> bool:
        """Returns whether the fetch has ended. The session has what arrived, even if it failed."""
        assert kept.fetch is not None
        try:
            if not self.fetches.ended(kept.fetch):
                if not self._late():
                    return False
                self._unfetched(kept, "the daemon does not answer")
                self._end(kept)
                return True
            self.counts.fetched += 1
        except DaemonLost as why:
            self._lose("a fetch", why)
        except TernError as why:
            self._unfetched(kept, f"{why.kind}: {why}")
        kept.fetch, kept.saved = None, kept.session.written
        return True

    def _unfetched(self, kept: Kept, why: object) -> None:
        lacking = max(kept.handed - kept.session.written, 0)
        self.counts.unfetched += 1
        self.counts.recomputed += lacking
        log.warning("tern: request %s computes %d tokens that its ticket lacks: %s", kept.request.request_id, lacking, why)

    def _forget(self, ns: Namespace) -> bool:
        return self._do("a reset", lambda: self.pool.connection.namespace_reset(ns)) is not None

    def _end(self, kept: Kept) -> None:
        """Ends Tern's part in a request that has ended or continues without Tern."""
        if self._kept.get(kept.request.request_id) is kept:
            del self._kept[kept.request.request_id]
        kept.ended = True
        if kept.fetch is not None:
            self.fetches.drop(kept.fetch)  # the close cancels it
        if not kept.pending:
            self._close(kept.session, kept.last_step or STEP_NONE)

    def _close(self, session: Session, step: int) -> None:
        """Closes a session. A close that failed is repeated later, since the daemon keeps the
        session."""
        if not session.open or self._lost:
            return
        again = (session, step)
        if self._late():
            self._close_later(again)
            return

        def close() -> None:
            try:
                session.close(step=step, deadline_ms=CALL_MS)
            except Gone:
                session.open = False  # an earlier close, whose answer came too late, has closed it
            except Busy:
                self._close_later(again)
            except TimedOut:
                self._close_later(again)
                raise

        self._do("a close", close)

    def _close_later(self, again: tuple[Session, int]) -> None:
        if again not in self._closing:
            self._closing.append(again)
        self._close_at = time.monotonic() + CLOSE_AGAIN_S

    def _commit(self, kept: Kept, depth: int, step: int) -> None:
        kept.pending -= 1
        if kept.session.open:
            self._do("a commit", lambda: kept.session.commit(depth, step=step, deadline_ms=CALL_MS), kept)
        if kept.ended and not kept.pending:
            self._close(kept.session, kept.last_step or STEP_NONE)

    def _whole(self, kept: Kept, end: int) -> int:
        """Returns how many of `end` computed tokens are saved; 0: no more than now.

        The windows at a ticket's end are those that decode needs, so a prompt that is handed over
        ends before its last token.
        """
        tokens = len(kept.request.all_token_ids) - wants_hand_over(kept.request.kv_transfer_params)
        depth = min(end, tokens) // self.block * self.block
        return depth if self.layout.can_end(depth, end) else 0

    def _extend(self, kept: Kept, depth: int, whole_from: int) -> bool:
        """Allocates pages up to `depth`, except those of windows before `whole_from`, of which vLLM
        lacks blocks. Returns False if there is no room: the save of the next block tries again."""
        s = kept.session
        append = list(kept.request.all_token_ids[s.tokens : depth])
        kept.tried = depth
        if whole_from + RESERVE > depth:
            return False
        extend = partial(s.extend, append=append, written=depth, allocated=max(depth, s.allocated), deadline_ms=CALL_MS)
        if self._do("an extend", extend, kept) is None:
            return False
        slide = partial(s.slide, whole_from + RESERVE, step=kept.last_step or STEP_NONE, deadline_ms=CALL_MS)
        return whole_from == 0 or self._do("a slide", slide, kept) is not None

    def _save(self, kept: Kept, blocks: Blocks, depth: int, at: int) -> Move | None:
        """Returns the save, or None if the place of a block or a page is unknown: then the request
        is no longer saved."""
        move = self._move(kept, blocks, (kept.saved, depth), at)
        if all(run.whole for run in move.runs):
            return move
        self.counts.refused += 1
        log.error("tern: request %s is no longer saved: %s", kept.request.request_id, move.runs)
        self._end(kept)
        return None

    def _move(self, kept: Kept, blocks: Blocks, span: tuple[int, int], at: int) -> Move:
        groups, table = self.pool.groups, kept.session.table
        runs = self.layout.runs(lambda group: table(groups[group].name), blocks, span, at)
        return Move(kept.request.request_id, span[1] - span[0], runs)
