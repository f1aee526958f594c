"""Plays requests through two daemons and compares every token and all logits with the model alone.

    TERN_BIN=build/bin TERN_LIBRARY=build/client/libtern.so python tests/engine_lm/run.py --requests 300

Exits with 1 if anything differs, a page leaks, or fewer than 99 % of the flipped bytes are caught.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "client/python/tests")]

import numpy as np  # noqa: E402
import tern  # noqa: E402
from daemons import start_pair, stop_pair  # noqa: E402
from engine import GROUPS, Counts, Decode, Handoff, Prefill, request_alone  # noqa: E402
from model import VOCABULARY, Alone, Model  # noqa: E402

MODEL_SEED = 19
AT_ONCE = 8
HELD = ("session", "transfer", "retiring", "quarantine", "leased", "ticket")


def different_of_100(model: Model) -> int:
    sequence, said = Alone(model), []
    for token in range(10):
        logits = sequence.append(token)
    for _ in range(100):
        said.append(int(logits.argmax()))
        logits = sequence.append(said[-1])
    return len(set(said))


def leaked(pool: tern.Pool) -> int:
    """Returns the number of pages of the pool that are in use after every session was closed."""
    groups = [g for g in pool.connection.stats()["pools"] if g["tier"] == "device"]
    return sum(int(g[state]) for g in groups for state in HELD)


def quantiles(seconds: list[float]) -> dict[str, float]:
    return {p: round(float(np.quantile(seconds, q)) * 1e6, 1) for p, q in (("p50", 0.5), ("p99", 0.99)) if seconds}


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--requests", type=int, default=300)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--supersede", choices=("lazy", "eager"), default="lazy")
    args.add_argument("--roomy", action="store_true", help="pools with room for all: what is timed is no waiting")
    args.add_argument("--tickets", action="store_true", help="prefill hands over by ticket, to the last token but one")
    args.add_argument("--follow", action="store_true", help="the same by an early ticket, which decode follows")
    args.add_argument("--flips", type=int, default=0, help="bytes that are flipped, in a pool without a host tier")
    o = args.parse_args()
    rng, model, counts = random.Random(o.seed), Model(MODEL_SEED), Counts()
    prefixes = [[rng.randrange(VOCABULARY) for _ in range(n)] for n in (0, 20, 40, 64)]
    pool = (256 if o.roomy else 72) << 10  # of the decode side
    host = 0 if o.flips else 8 * pool
    with tempfile.TemporaryDirectory() as folder:
        pair = start_pair(Path(folder))
        with tern.connect(pair[0].socket) as a, tern.connect(pair[1].socket) as b:
            pools = [
                engine.open_pool(GROUPS, bytes=size, host_bytes=host, supersede=o.supersede)
                for engine, size in ((a.join("prefill"), 2 * pool), (b.join("decode"), pool))
            ]
            prefill = Prefill(model, pools[0], counts, o.tickets, o.follow)
            ns, begun = tern.Namespace(model="engine-lm", salt=str(o.seed)), 0
            decode = Decode(model, pools[1], "host-a", counts, rng, host > 0, prefill, ns)

            def published(handoff: Handoff) -> None:  # without it the fetch waits for the publication
                a.wait_published(prefill.engine.last_step)
                handoff.published = time.perf_counter()

            while begun < o.requests or decode.running:
                if begun < o.requests and len(decode.running) < AT_ONCE:
                    request = request_alone(model, begun, rng, prefixes)
                    decode.turn(decode.admit(request), published if o.roomy else None)
                    begun += 1
                decode.iterate(flip=counts.flips < o.flips)
            b.wait_published(decode.engine.last_step)
            a.wait_published(prefill.engine.last_step)
            leaks = sum(map(leaked, pools))
        stop_pair(pair)
    different = different_of_100(model)
    told: dict[str, object] = {
        "requests": begun,
        "tokens": counts.tokens,
        "wrong": counts.wrong,
        "leaked_pages": leaks,
        "different_of_100": different,
        "flips": counts.flips,
        "caught": counts.caught,
    }
    if o.roomy:  # times of equal requests: from the last step of prefill to the first token of decode
        h = counts.handoffs
        told["handoff_us"] = {
            "publish": quantiles([x.published - x.done for x in h]),
            "fetch": quantiles([x.fetched - x.published for x in h]),
            "attach": quantiles([x.first_token - x.fetched for x in h]),
            "all": quantiles([x.first_token - x.done for x in h]),
        }
    told |= {k: v for k, v in vars(counts).items() if k not in told and isinstance(v, int)}
    print(json.dumps(told, indent=1))
    held = counts.wrong == 0 and leaks == 0 and counts.caught >= 0.99 * counts.flips
    tried = (counts.aborts, counts.retracts, counts.recovered, counts.rejected, counts.from_tail, counts.exhausted)
    if not o.roomy and 0 in tried:
        print("nothing was aborted, retracted, recovered, rejected, fetched or told to wait", file=sys.stderr)
        held = False
    if (o.tickets or o.follow) and counts.tickets <= counts.untaken:
        print("no ticket was taken", file=sys.stderr)
        held = False
    return 0 if held and different >= 30 and counts.flips >= o.flips else 1


sys.exit(main())
