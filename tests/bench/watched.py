#!/usr/bin/env python3
"""Measures the cost of watching a daemon: runs `tern-bench rpc` and `tern-bench transfer` in pairs, alone and with a
tern-agent that is scraped each second and a `ternctl top` beside each daemon. Prints for each figure the median of
the pairs' ratios, 1.00 if watching costs nothing. Exit status: 1 if a figure is worse by more than 2 % and by more
than the pairs differ. For a machine at rest.

    tests/bench/watched.py [--pairs N] [--mode rpc|transfer] [--before DIR] [BENCH-OPTION...]

15 pairs; `--quick` for short ones. --before: the runs alone are of another build, whose programs lie in DIR, such as
the one before a change. This process itself uses little of the machine: a scrape starts no process."""

import argparse
import contextlib
import dataclasses
import glob
import http.client
import json
import os
import pathlib
import pty
import re
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

BIN = pathlib.Path(os.environ.get("TERN_BIN") or pathlib.Path(__file__).parents[2] / "build/bin")
SCRAPE_S = 1.0
LOOK_S = 0.1  # for new daemons
BUSY = "processor's time"  # of the benchmark with its daemons, which do the same work each time
FIGURES = {  # name: whether more is better
    "rpc": {"match_rtt_us_p50": False, "pipelined_per_s": True, "step_us_p50": False, "decode_step_us_p50": False},
    "transfer": {f"gb_s of {n} KiB pages": True for n in (16, 64, 256, 1024)} | {BUSY: False},
}


@dataclasses.dataclass
class Cost:
    scrapes: int = 0
    watched_s: float = 0
    busy_s: float = 0

    def add(self, other: "Cost") -> None:
        self.scrapes += other.scrapes
        self.watched_s += other.watched_s
        self.busy_s += other.busy_s


class Watcher:
    """An agent and a `top` for one daemon."""

    def __init__(self, socket: str) -> None:
        self.scrapes = 0
        self.due = time.monotonic()
        self.began, self.began_busy_s = 0.0, 0.0  # at the first scrape
        self.agent = subprocess.Popen(
            [BIN / "tern-agent", "--listen", "127.0.0.1:0", "--socket", socket], stderr=subprocess.PIPE, text=True
        )
        self.master, slave = pty.openpty()
        self.top = subprocess.Popen(
            [BIN / "ternctl", "--socket", socket, "top"], stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        self.http: http.client.HTTPConnection | None = None

    def look(self) -> None:
        while select.select([self.master], [], [], 0)[0]:
            try:
                os.read(self.master, 65536)
            except OSError:  # `top` has ended
                break
        if self.http is None:
            assert self.agent.stderr
            if not select.select([self.agent.stderr], [], [], 0)[0]:
                return
            where = re.search(r"listens at http://([^/]*)/", self.agent.stderr.readline())
            if not where:
                return
            self.http = http.client.HTTPConnection(where[1], timeout=5)
        if time.monotonic() < self.due:
            return
        if self.scrapes == 0:
            self.began, self.began_busy_s = time.monotonic(), self.busy_s()
        self.due = time.monotonic() + SCRAPE_S
        with contextlib.suppress(OSError, http.client.HTTPException):  # the daemon has ended, and its agent reports it
            self.http.request("GET", "/metrics")
            answer = self.http.getresponse()
            self.scrapes += b"tern_" in answer.read() and answer.status == 200

    def busy_s(self) -> float:
        """Returns the processor time of both."""
        return sum(int(pathlib.Path(f"/proc/{p.pid}/schedstat").read_text().split()[0]) for p in (self.agent, self.top)) / 1e9

    def end(self) -> "Cost":
        """Measured without their starts."""
        cost = Cost()
        if self.scrapes:
            cost = Cost(self.scrapes, time.monotonic() - self.began, self.busy_s() - self.began_busy_s)
        for process in (self.agent, self.top):
            process.terminate()
            process.wait()
        os.close(self.master)
        return cost


class Watchers(threading.Thread):
    """Watches each daemon of a benchmark from its start to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()
        self.cost = Cost()

    def run(self) -> None:
        watched: dict[str, Watcher] = {}
        while not self.over.wait(LOOK_S):
            there = set(glob.glob(f"{tempfile.gettempdir()}/tern-bench.*/*.admin"))
            for socket in there - watched.keys():
                watched[socket] = Watcher(socket)
            for socket in watched.keys() - there:
                self.cost.add(watched.pop(socket).end())
            for one in watched.values():
                one.look()
        for one in watched.values():
            self.cost.add(one.end())


def bench(programs: pathlib.Path, mode: str, options: list[str]) -> dict[str, Any]:
    process = subprocess.Popen(
        [programs / "tern-bench", mode, "--json", *(["--table=pages"] if mode == "transfer" else []), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1), f"tern-bench {mode}: exit status {process.returncode}"  # 1: beyond a limit
    return json.loads(said) | {BUSY: usage.ru_utime + usage.ru_stime}


def figure(j: dict[str, Any], name: str) -> float:
    if name in j:
        return j[name]
    return {r["page_bytes"]: r["gb_s"] for r in j["rows"]}[int(name.split()[2]) << 10]


def main() -> int:
    parser = argparse.ArgumentParser(description="what it costs a daemon to be watched")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--mode", choices=FIGURES, action="append", help="this benchmark alone")
    parser.add_argument("--before", type=pathlib.Path, default=BIN, metavar="DIR")
    mine, options = parser.parse_known_args()
    modes = mine.mode or list(FIGURES)
    runs: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {mode: [] for mode in modes}
    cost = Cost()

    def watched(mode: str) -> dict[str, Any]:
        watchers = Watchers()
        watchers.start()
        try:
            return bench(BIN, mode, options)
        finally:
            watchers.over.set()
            watchers.join()
            cost.add(watchers.cost)

    for i in range(mine.pairs):
        for mode in modes:
            if i % 2:
                second, first = watched(mode), bench(mine.before, mode, options)
            else:
                first, second = bench(mine.before, mode, options), watched(mode)
            runs[mode].append((first, second))
    worse = []
    for mode in modes:
        for name, more in FIGURES[mode].items():
            ratios = sorted(figure(b, name) / figure(a, name) for a, b in runs[mode])
            if more:
                ratios = sorted(1 / r for r in ratios)
            middle = statistics.median(ratios)
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            print(f"{mode:9} {name:24} takes {middle:.3f} times as long, the middle half {low:.3f} to {high:.3f}")
            if middle > 1.02 and low > 1.02:
                worse.append(name)
    print(f"{mine.pairs} pairs, {cost.scrapes} scrapes; agent and top of a daemon take "
          f"{1000 * cost.busy_s / max(cost.watched_s, 1):.1f} ms of a processor each second")
    if cost.scrapes == 0:
        worse.append("nothing, as nothing was watched")
    if worse:
        print(f"watching costs more than 2 %: {', '.join(worse)}")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
