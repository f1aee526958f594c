"""Replays the beginning of a real trace through one daemon with a disk tier, over device and host
tiers of several sizes, and compares what each finds with what a cache without limits finds.

    TERN_BIN=build/bin TERN_LIBRARY=build/client/libtern.so python tests/engine_lm/tiers.py TRACE
    REQUESTS PAGES

Each prompt is committed, closed, and stored before the next one. More tiers never keep less (D6):
with all sizes, a prompt finds in memory or on the disk exactly what it has in common with the
prompts before it. Then come answers, which
no cold store has: the daemon ends, and the next one must have on its disk what memory had of them.
Last come bursts: sessions close at once, and as many new prompts need their pages. PAGES: of the
smallest device tier; it has room for the longest prompt. Exits with 1 if a size keeps less.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "client/python/tests")]

import tern  # noqa: E402
from daemons import Daemon, configured, run  # noqa: E402

PAGE = 64  # tokens, and align_tokens
BYTES = 256  # of a page
IDLE_S = 60
BURST = 20  # sessions that close at once
ANSWERS, ANSWER = 12, 20  # number of answers, and pages of each for every hundred of the device
GROUP = tern.Group("kv", page_tokens=PAGE, shape=(PAGE, 4), dtype="uint8")


def prompts(trace: Path, requests: int) -> list[list[int]]:
    """Returns prompts whose tokens depend only on the trace's blocks; tokens behind the last whole
    block are new."""
    all_of_them = []
    with trace.open() as lines:
        for number, line in zip(range(requests), lines):
            r = json.loads(line)
            size = r.get("block_size", 512)
            tokens = [(b * 8191 + i * 31 + 7) % (1 << 30) for b in r["hash_ids"] for i in range(size)]
            tokens = tokens[: r["input_length"]]
            fresh = range(len(tokens), r["input_length"])
            all_of_them.append(tokens + [(1 << 30) + number * 4096 + i for i in fresh])
    return all_of_them


def without_limits(asked: list[list[int]]) -> list[int]:
    """Returns how many tokens of each prompt, except its last, which is computed, earlier prompts
    have committed."""
    seen: set[int] = set()
    found = []
    for tokens in asked:
        depth, chain = 0, 0
        for at in range(0, len(tokens) - PAGE + 1, PAGE):
            chain = hash((chain, tuple(tokens[at : at + PAGE])))
            if chain in seen and depth == at and at + PAGE < len(tokens):
                depth = at + PAGE
            seen.add(chain)
        found.append(depth)
    return found


def spill_of(d: Daemon) -> Any:
    ctl = [str(Path(os.environ["TERN_BIN"]) / "ternctl"), "--socket", str(Path(d.socket).parent / "admin.sock")]
    said = subprocess.run([*ctl, "status", "--json"], capture_output=True, check=True)
    return json.loads(said.stdout)["tenants"][0]["spill"]


def idle(d: Daemon) -> None:
    end = time.monotonic() + IDLE_S
    while spill_of(d)["stores"]:
        assert time.monotonic() < end, "the stores do not end"
        time.sleep(0.005)


def extended(s: tern.Session, tokens: list[int]) -> None:
    """Extends the session, and repeats that until there is room: what is evicted is first copied to
    the host."""
    end = time.monotonic() + IDLE_S
    while True:
        try:
            s.extend(append=tokens[s.tokens :], allocated=len(tokens), written=len(tokens))
            return
        except (tern.Busy, tern.Exhausted):
            assert time.monotonic() < end, "there is no room"
            time.sleep(0.002)


def memory_of(pool: tern.Pool, ns: tern.Namespace, tokens: list[int]) -> int:
    depths = pool.peek(ns, tokens)
    return max(depths.resumable, depths.host)


def replay(folder: Path, asked: list[list[int]], device: int, host: int) -> tuple[list[int], Any]:
    """Returns how much each prompt finds, and the disk's counts; `lost`: answers of which the next
    daemon has less."""
    here = folder / f"host-{device}-{host}"
    d = started(here, device, host)
    found = []
    with tern.connect(d.socket) as connection:
        engine = connection.join("lm")
        pool = engine.open_pool([GROUP], bytes=(device + 1) * BYTES, host_bytes=(host + 1) * BYTES if host else 0)
        ns = tern.Namespace(model="trace")
        for tokens in asked:
            with pool.session(ns) as s:
                s.match(tokens[:-1])
                depths = pool.peek(ns, tokens[:-1])
                found.append(max(depths.resumable, depths.host, depths.disk))
                extended(s, tokens)
                with engine.step() as step:
                    s.commit(len(tokens) // PAGE * PAGE, step=step)
                connection.wait_published(step)
            idle(d)
        counts = spill_of(d)
        answers = [[(2 << 30) + (k << 20) + i for i in range(device * ANSWER // 100 * PAGE)] for k in range(ANSWERS)]
        for tokens in answers:
            with pool.session(ns) as s:
                s.match(tokens[:PAGE])
                extended(s, tokens)
                with engine.step() as step:
                    s.commit(len(tokens), step=step)
                connection.wait_published(step)
            idle(d)
        held = [memory_of(pool, ns, tokens) for tokens in answers]
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(IDLE_S) == 0, "the daemon did not end well"
    d = run(here, here.name)
    with tern.connect(d.socket) as connection:
        pool = connection.join("lm").open_pool([GROUP], bytes=(device + 1) * BYTES)
        kept = [pool.peek(ns, tokens).disk for tokens in answers]
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(IDLE_S) == 0, "the daemon did not end well"
    print(f"  answers: memory held {sum(held)} tokens at the end, {sum(map(min, held, kept))} of them are found")
    counts["lost"] = sum(h > k for h, k in zip(held, kept))
    return found, counts


def started(folder: Path, device: int, host: int) -> Daemon:
    folder.mkdir()
    (folder / "spill").mkdir()
    disk = "bytes: 256M, headroom: 0, threads: 1, align: 64"
    spill = f"spill: {{dir: {folder}/spill, {disk}}}"
    memory = f"memory: {(device + 1) * BYTES // 1024 + 64}K, host_memory: {(host + 1) * BYTES // 1024 + 64}K"
    return run(configured(folder, memory, f"page_bytes_min: {BYTES}\n{spill}\n"), folder.name)


def burst(folder: Path, device: int, host: int) -> int:
    """BURST sessions fill the device and close at once, and as many new prompts follow. Returns how
    many of the first ones are on the disk afterwards."""
    here = folder / f"burst-{device}-{host}"
    d = started(here, device, host)
    asked = [[(3 << 28) + (k << 20) + i for i in range(device // BURST * PAGE)] for k in range(2 * BURST)]
    with tern.connect(d.socket) as connection:
        engine = connection.join("lm")
        pool = engine.open_pool([GROUP], bytes=(device + 1) * BYTES, host_bytes=(host + 1) * BYTES if host else 0)
        ns = tern.Namespace(model="burst")

        def committed(tokens: list[int]) -> tern.Session:
            s = pool.session(ns)
            s.match(tokens[:-1])
            extended(s, tokens)
            with engine.step() as step:
                s.commit(len(tokens), step=step)
            connection.wait_published(step)
            return s

        first = [committed(tokens) for tokens in asked[:BURST]]
        for s in first:
            s.close(step=tern.STEP_NONE)
        for s in [committed(tokens) for tokens in asked[BURST:]]:
            s.close(step=tern.STEP_NONE)
        idle(d)
        counts = spill_of(d)
    d.process.kill()  # so that the end does not store what memory has
    d.process.wait(IDLE_S)
    d = run(here, here.name)
    with tern.connect(d.socket) as connection:
        pool = connection.join("lm").open_pool([GROUP], bytes=(device + 1) * BYTES)
        kept = sum(pool.peek(ns, tokens).disk >= len(tokens) - PAGE for tokens in asked[:BURST])
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(IDLE_S) == 0, "the daemon did not end well"
    print(f"burst: device {device}, host {host}: {kept} of {BURST} are on the disk, {counts['failed']} stores failed")
    return kept


def main() -> int:
    trace, requests, pages = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    asked = prompts(trace, requests)
    want, bad = without_limits(asked), 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for device, host in ((pages, 0), (pages, pages // 2), (pages, 2 * pages), (2 * pages, 0)):
            found, counts = replay(Path(folder), asked, device, host)
            wrong = [(i, a, b) for i, (a, b) in enumerate(zip(found, want)) if a != b]
            print(f"{trace.stem}: device {device}, host {host}: {sum(found)} of {sum(want)} tokens, {counts['stored']}")
            if wrong or counts["failed"] or counts["evicted"] or counts["lost"]:
                print(f"  (request, found, without limits): {wrong[:5]}; {counts}", file=sys.stderr)
                bad += 1
        bad += sum(burst(Path(folder), 20 * BURST, host) < BURST for host in (0, 10 * BURST, 60 * BURST))
    return 1 if bad or not sum(want) else 0


sys.exit(main())
