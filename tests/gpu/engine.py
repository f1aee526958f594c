"""An engine in PyTorch on two daemons of one GPU: engine.py PREFILL.sock DECODE.sock PEER

Prefill writes pages by kernels in a stream of its own, which run late, and commits in that stream;
for every second session it passes the checksums along. Decode fetches, and compares every byte on
the GPU."""

import sys

import tern
import torch

KV = tern.Group("kv", page_tokens=16, shape=(2, 16, 8, 64), dtype="float16")  # 32 KiB
NS = tern.Namespace(model="pytorch")
SESSIONS, LATE_CYCLES = 40, 2_000_000


def computed(tokens: torch.Tensor) -> torch.Tensor:
    """Returns the KV of tokens, which each token determines, in place of a model."""
    kv = (tokens[:, None] * 2654435761 + torch.arange(2 * 8 * 64, device="cuda")) % 2039
    return kv.to(torch.float16).reshape(-1, 16, 2, 8, 64).transpose(1, 2).contiguous()


def rows(s: tern.Session) -> torch.Tensor:
    return torch.tensor(s.table("kv").astype("int64"), device="cuda")


def main(prefill_socket: str, decode_socket: str, peer: str) -> None:
    with tern.connect(prefill_socket) as a, tern.connect(decode_socket) as b:
        prefill, decode = a.join("prefill"), b.join("decode")
        p, d = prefill.open_pool([KV], bytes=64 << 20), decode.open_pool([KV], bytes=64 << 20)
        pages, stream = torch.from_dlpack(p.view("kv")), torch.cuda.Stream()
        for i in range(SESSIONS):
            n = 16 * (4 + i % 13)
            tokens = [10007 * i + t for t in range(n)]
            want = computed(torch.tensor(tokens, device="cuda"))
            with p.session(NS) as s:
                s.match(tokens)
                s.extend(allocated=n, written=n)
                at = rows(s)
                torch.cuda.synchronize()
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(LATE_CYCLES)
                    pages.index_copy_(0, at, want)
                with prefill.step(stream=stream.cuda_stream) as step:
                    if i % 2:
                        p.checksums_on_stream("kv", s.page_refs("kv"), step=step, stream=stream.cuda_stream)
                    s.commit(n, step=step)
                a.wait_published(step)
            with d.session(NS) as s:
                s.match(tokens)
                s.fetch(peer, at_least=n, step=tern.STEP_NONE)
                if not torch.equal(torch.from_dlpack(d.view("kv"))[rows(s)], want):
                    raise SystemExit(f"engine.py: session {i} of {n} tokens has other bytes on the decode side")
        torch.cuda.synchronize()
        del pages
    print(f"PyTorch {torch.__version__}: {SESSIONS} sessions, every byte as it was written")


main(*sys.argv[1:4])
