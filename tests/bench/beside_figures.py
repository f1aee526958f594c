#!/usr/bin/env python3
"""Compares the figures of two builds that beside.sh measured with tern-bench in alternation: DIR has
STAGE.ROUND.base and STAGE.ROUND.this, one JSON object each. Exit status: 1 if a limit is exceeded."""

import argparse
import json
import pathlib
import re
import statistics
import sys
from typing import Any

MORE_IS_BETTER = re.compile(r"(_per_s|gb_s)$")
LESS_IS_BETTER = re.compile(r"_(us|ns|ms)(_|$)|_steps$")
RAW = re.compile(r"(^|[._])(raw|memcmp|block_pool|small_pages)_")
NAMES = ("table", "page_bytes", "piece_bytes", "peers", "connections", "name")  # of a row of an array

Figures = dict[str, list[float]]


def flatten(value: Any, path: str, into: dict[str, float]) -> None:
    if isinstance(value, dict):
        for key, below in value.items():
            flatten(below, f"{path}.{key}", into)
    elif isinstance(value, list):
        for i, row in enumerate(value):
            name = next((row[n] for n in NAMES if isinstance(row, dict) and n in row), i)
            flatten(row, f"{path}[{name}]", into)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        into[path] = float(value)


def read(results: pathlib.Path, stage: str, rounds: int, side: str) -> Figures:
    figures: Figures = {}
    for i in range(1, rounds + 1):
        flat: dict[str, float] = {}
        flatten(json.loads((results / f"{stage}.{i}.{side}").read_text()), stage, flat)
        for name, v in flat.items():
            figures.setdefault(name, []).append(v)
    return figures


def figure(name: str, base: list[float], this: list[float]) -> dict[str, Any]:
    more = bool(MORE_IS_BETTER.search(name))
    pairs = [(b, t) for b, t in zip(base, this) if b > 0 and t > 0]
    ratios = [b / t if more else t / b for b, t in pairs]
    return {
        "name": name,
        "base": statistics.median(base),
        "this": statistics.median(this),
        "ratio": statistics.median(ratios) if ratios else None,
        "least": min(ratios, default=None),
        "greatest": max(ratios, default=None),
        "judged": bool(ratios) and (more or bool(LESS_IS_BETTER.search(name))) and not RAW.search(name),
    }


def show(rows: list[dict[str, Any]], base: str, rounds: int) -> None:
    print(f"this tree beside {base}, {rounds} rounds; a ratio above 1 is slower (? is not judged)")
    print(f"{'figure':<44}{'base':>12}{'this':>12}{'ratio':>8}  rounds")
    for r in rows:
        numbers = f"{r['name']:<44}{r['base']:>12.5g}{r['this']:>12.5g}"
        if r["ratio"] is None:
            print(numbers)
        else:
            print(f"{numbers}{r['ratio']:>8.3f}  {r['least']:.3f} to {r['greatest']:.3f}{'' if r['judged'] else ' ?'}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--results", type=pathlib.Path, required=True)
    options.add_argument("--rounds", type=int, required=True)
    options.add_argument("--base", required=True)
    options.add_argument("--limit", type=float, default=0, help="0: none")
    options.add_argument("--only", default="")
    options.add_argument("--json", default="")
    options.add_argument("stages", nargs="+")
    asked = options.parse_args()
    rows, here, there = [], [], []
    for stage in asked.stages:
        base, this = (read(asked.results, stage, asked.rounds, side) for side in ("base", "this"))
        here += [n for n in this if n not in base]
        there += [n for n in base if n not in this]
        rows += [figure(n, base[n], this[n]) for n in base if n in this and re.search(asked.only, n)]
    show(rows, asked.base, asked.rounds)
    if here:
        print(f"only in this tree: {', '.join(here)}")
    if there:
        print(f"only in {asked.base}: {', '.join(there)}")
    if asked.json:
        report = {"base": asked.base, "rounds": asked.rounds, "figures": rows, "only_here": here, "only_base": there}
        pathlib.Path(asked.json).write_text(json.dumps(report, indent=2) + "\n")
    if not rows:
        print(f"no figure matches '{asked.only}'")
        return 1
    late = [r["name"] for r in rows if asked.limit and r["judged"] and r["ratio"] > asked.limit]
    if late:
        print(f"FAILED: slower than {asked.limit:g} x: {', '.join(late)}")
    return bool(late)


if __name__ == "__main__":
    sys.exit(main())
