"""Three turns prefilled on one host and decoded on another; every byte is checked. two_hosts.py A.sock B.sock PEER"""

import sys

import numpy as np
import tern

KV = tern.Group("kv", page_tokens=16, shape=(16, 8), dtype="float32")
NS = tern.Namespace(model="two-hosts")


def compute(pool: tern.Pool, s: tern.Session, tokens: list[int], first: int) -> None:
    for t in range(first, len(tokens)):  # in place of kernels: the KV of a token is the token
        pool.pages("kv")[s.table("kv")[t // 16], t % 16] = tokens[t]


def check(pool: tern.Pool, s: tern.Session, tokens: list[int]) -> None:
    pages = pool.pages("kv")[s.table("kv")].reshape(-1, 8)[: s.written]
    assert (pages == np.array(tokens[: s.written], np.float32)[:, None]).all()


def main(prefill_socket: str, decode_socket: str, peer: str) -> None:
    with tern.connect(prefill_socket) as a, tern.connect(decode_socket) as b:
        prefill, decode = a.join("prefill"), b.join("decode")
        p, d = (e.open_pool([KV], bytes=1 << 20, host_bytes=1 << 20) for e in (prefill, decode))
        tokens: list[int] = []
        for turn in range(3):
            tokens += range(1000 * turn, 1000 * turn + 50)
            with p.session(NS) as s, prefill.step() as step:
                cached = s.match(tokens).written
                s.extend(written=len(tokens), allocated=len(tokens))
                compute(p, s, tokens, cached)
                s.commit(len(tokens) // 16 * 16, step=step)
            with d.session(NS) as s, decode.batch() as batch:
                s.match(tokens)
                s.fetch(peer, at_least=len(tokens) // 16 * 16, step=tern.STEP_NONE)  # waits until it is published there
                with decode.step() as step:
                    s.extend(allocated=len(tokens) + 4)  # the rest of the prompt, and 4 tokens of a draft
                    compute(d, s, tokens + [7, 7, 7, 7], s.written)
                tokens += [7, 7]  # the model accepts two of them
                s.extend(append=[7, 7], written=len(tokens))
                s.rewind(len(tokens), step=step)
                s.retract("host", step=step)
                s.recover()
                check(d, s, tokens)
                batch.commit(s, len(tokens) // 16 * 16, step=step)
                batch.abort(s, step=step)
    print(f"two hosts: 3 turns, {len(tokens)} tokens, every byte as it was written")


main(*sys.argv[1:4])
