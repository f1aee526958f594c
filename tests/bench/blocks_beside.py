#!/usr/bin/env python3
"""Compares blocks with other stores of values by key, alternating in one run: Redis, files of a tmpfs, Mooncake's store and
LMCache's CPU back end. Each store has a process of its own, which puts values from its memory and gets them into other
memory; every value returned is compared. A missing store is named with the reason, and the others are measured.

    tests/bench/blocks_beside.py [--quick] [--rounds N] [--sizes N,N...] [--without NAME]...

TERN_BIN has ternd, TERN_LIBRARY is libtern. TERN_REDIS names redis-server if PATH has none; TERN_MOONCAKE and TERN_LMCACHE
name a Python that has mooncake-transfer-engine (with mooncake_master beside it) and lmcache. Prints one JSON object: `rows`
has medians over the rounds, of a round's median call in microseconds and of a pass in GB/s, and `ratio`: the time of a call
of the store divided by that of Tern's call, with the least and the greatest of the rounds. `missing` gives the reason for
each store that was not measured. One thread copies everywhere.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import mmap
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

STORES = ("tern", "redis", "tmpfs", "mooncake", "lmcache")
SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
LISTS = (1, 32)
CALLS, BYTES = 128, 64 << 20  # of one pass, at most; but one call at least
ROOM = 1 << 30  # of each store
READY_S = 60
Views = Sequence[memoryview]


def key_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def until(what: str, ready: Any) -> None:
    end = time.monotonic() + READY_S
    while not ready():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} does not start")
        time.sleep(0.05)


class Store:
    """A store as its own process sees it: `at` is the address, `memory` the size of all values."""

    servers: list[subprocess.Popen[bytes]]

    def __init__(self, size: int, at: int, memory: int, folder: str) -> None:
        self.servers = []

    def serve(self, *command: object, **more: Any) -> None:
        log = open(os.devnull, "wb")
        self.servers.append(subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, **more))

    def put(self, names: list[str], values: Views) -> None:
        raise NotImplementedError

    def get(self, names: list[str], values: Views) -> None:
        raise NotImplementedError

    def remove(self, names: list[str]) -> None:
        raise NotImplementedError


class Tern(Store):
    def __init__(self, size: int, at: int, memory: int, folder: str) -> None:
        super().__init__(size, at, memory, folder)
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client/python"))
        import tern

        config = Path(folder) / "ternd.yaml"
        config.write_text(
            f"page_bytes_min: {size}\nlimits: {{groups: 1}}\nadmin: {{socket: {folder}/admin.sock}}\n"
            f"tenants:\n  - {{name: t, socket: {folder}/t.sock, memory: {ROOM}}}\n"
        )
        self.serve(Path(os.environ["TERN_BIN"]) / "ternd", "--config", config)
        until("ternd", lambda: os.path.exists(f"{folder}/t.sock"))
        self.set = tern.Blocks(
            f"{folder}/t.sock", namespace=tern.Namespace(model="m"), group="kv", value_bytes=size,
            pool_bytes=ROOM * 7 // 8, populate=True,
        )  # fmt: skip

    def put(self, names: list[str], values: Views) -> None:
        assert all(self.set.put([key_of(name) for name in names], values))

    def get(self, names: list[str], values: Views) -> None:
        assert all(self.set.get([key_of(name) for name in names], values))

    def remove(self, names: list[str]) -> None:
        self.set.remove([key_of(name) for name in names])


class Redis(Store):
    """Speaks the protocol without copies: a client library would make one or two."""

    def __init__(self, size: int, at: int, memory: int, folder: str) -> None:
        super().__init__(size, at, memory, folder)
        server = os.environ.get("TERN_REDIS") or shutil.which("redis-server")
        if not server:
            raise RuntimeError("no redis-server in PATH, and TERN_REDIS names none")
        path = f"{folder}/redis.sock"
        self.serve(server, "--port", 0, "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", folder)
        until("redis-server", lambda: os.path.exists(path))
        self.size = size
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.answers = self.socket.makefile("rb", buffering=0)

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\r\n"):
            line += self.socket.recv(1)
        return line[:-2]

    def _send(self, parts: list[Any]) -> None:
        flat = [memoryview(b"*%d\r\n" % len(parts))]
        for part in parts:
            flat += [memoryview(b"$%d\r\n" % len(part)), memoryview(part), memoryview(b"\r\n")]
        while flat:
            sent = self.socket.sendmsg(flat[:1000])
            while flat and sent >= len(flat[0]):
                sent -= len(flat.pop(0))
            if sent:
                flat[0] = flat[0][sent:]

    def put(self, names: list[str], values: Views) -> None:
        self._send([b"MSET", *(part for name, value in zip(names, values) for part in (key_of(name), value))])
        assert self._line() == b"+OK"

    def get(self, names: list[str], values: Views) -> None:
        self._send([b"MGET", *(key_of(name) for name in names)])
        assert self._line() == b"*%d" % len(names)
        for value in values:
            assert self._line() == b"$%d" % self.size
            at = 0
            while at < self.size:
                at += self.socket.recv_into(value[at:])
            assert self._line() == b""

    def remove(self, names: list[str]) -> None:
        self._send([b"DEL", *(key_of(name) for name in names)])
        assert self._line() == b":%d" % len(names)


class Tmpfs(Store):
    def __init__(self, size: int, at: int, memory: int, folder: str) -> None:
        super().__init__(size, at, memory, folder)
        if not os.access("/dev/shm", os.W_OK):
            raise RuntimeError("/dev/shm cannot be written")
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tern-beside-")

    def put(self, names: list[str], values: Views) -> None:
        for name, value in zip(names, values):
            fd = os.open(f"{self.folder.name}/{name}", os.O_WRONLY | os.O_CREAT)
            assert os.write(fd, value) == len(value)
            os.close(fd)

    def get(self, names: list[str], values: Views) -> None:
        for name, value in zip(names, values):
            fd = os.open(f"{self.folder.name}/{name}", os.O_RDONLY)
            assert os.readv(fd, [value]) == len(value)
            os.close(fd)

    def remove(self, names: list[str]) -> None:
        for name in names:
            os.unlink(f"{self.folder.name}/{name}")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Mooncake(Store):
    """A segment in this process, which the transport copies by memcpy (MC_STORE_MEMCPY)."""

    def __init__(self, size: int, at: int, memory: int, folder: str) -> None:
        super().__init__(size, at, memory, folder)
        os.environ["MC_STORE_MEMCPY"] = "1"
        from mooncake.store import MooncakeDistributedStore  # type: ignore[import-not-found]

        port = free_port()
        self.serve(Path(sys.executable).parent / "mooncake_master", "-rpc_port", port, "-metrics_port", free_port())
        until("mooncake_master", lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        self.store = MooncakeDistributedStore()
        done = self.store.setup(
            f"127.0.0.1:{free_port()}", "P2PHANDSHAKE", ROOM, 64 << 20, "tcp", "", f"127.0.0.1:{port}"
        )
        if done != 0 or self.store.register_buffer(at, memory) != 0:
            raise RuntimeError(f"its client ends its setup with {done}")
        self.size = size

    def _addresses(self, values: Views) -> list[int]:
        return [ctypes.addressof(ctypes.c_char.from_buffer(value)) for value in values]

    def put(self, names: list[str], values: Views) -> None:
        assert set(self.store.batch_put_from(names, self._addresses(values), [self.size] * len(names))) == {0}

    def get(self, names: list[str], values: Views) -> None:
        got = self.store.batch_get_into(names, self._addresses(values), [self.size] * len(names))
        assert set(got) <= {0, self.size}, set(got)

    def remove(self, names: list[str]) -> None:
        pass  # a value that was read has a lease, so it is evicted later


class Lmcache(Store):
    """Memory of this process alone: no other process has these values."""

    def __init__(self, size: int, at: int, memory: int, folder: str) -> None:
        super().__init__(size, at, memory, folder)
        import torch  # type: ignore[import-not-found]
        from lmcache.utils import CacheEngineKey  # type: ignore[import-not-found]
        from lmcache.v1.config import LMCacheEngineConfig  # type: ignore[import-not-found]
        from lmcache.v1.memory_management import MemoryFormat  # type: ignore[import-not-found]
        from lmcache.v1.metadata import LMCacheMetadata  # type: ignore[import-not-found]
        from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend  # type: ignore[import-not-found]

        torch.set_num_threads(1)
        config = LMCacheEngineConfig.from_defaults(local_cpu=True, max_local_cpu_size=ROOM / (1 << 30))
        self.backend = LocalCPUBackend(config, LMCacheMetadata("m", 1, 1, 0, 0, torch.uint8, (1, 2, 1, 1, size // 2)))
        self.torch, self.form, self.size = torch, MemoryFormat.KV_2LTD, size
        self.shape = torch.Size([2, 1, 1, size // 2])
        self.key: Callable[[str], Any] = lambda name: CacheEngineKey("m", 1, 0, int.from_bytes(key_of(name)[:7], "big"), torch.uint8)

    def put(self, names: list[str], values: Views) -> None:
        for name, value in zip(names, values):
            obj = self.backend.allocate(self.shape, self.torch.uint8, self.form)
            obj.tensor.view(-1).copy_(self.torch.frombuffer(value, dtype=self.torch.uint8))
            self.backend.submit_put_task(self.key(name), obj)
            obj.ref_count_down()

    def get(self, names: list[str], values: Views) -> None:
        for name, value in zip(names, values):
            obj = self.backend.get_blocking(self.key(name))
            self.torch.frombuffer(value, dtype=self.torch.uint8).copy_(obj.tensor.view(-1))
            obj.ref_count_down()

    def remove(self, names: list[str]) -> None:
        for name in names:
            self.backend.remove(self.key(name))


# ---- a store's process ----


def serve(name: str, size: int, folder: str) -> None:
    """Runs the pass of each line {list, round, calls} of its input, and answers with its times."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for what the stores print
    half = max(BYTES, size * max(LISTS))
    memory = mmap.mmap(-1, 2 * half)
    memory[:half] = os.urandom(1 << 20) * (half >> 20)
    memory[half:] = memory[:half]
    view = memoryview(memory)
    try:
        store = {"tern": Tern, "redis": Redis, "tmpfs": Tmpfs, "mooncake": Mooncake, "lmcache": Lmcache}[name](
            size, ctypes.addressof(ctypes.c_char.from_buffer(memory)), 2 * half, folder
        )
    except Exception as error:
        print(json.dumps({"missing": str(error) or type(error).__name__}), file=answers, flush=True)
        return
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        n, calls = ask["list"], ask["calls"]
        names = [f"{ask['round']}-{n}-{i}" for i in range(n * calls)]
        took: dict[str, list[float]] = {"put": [], "get": []}
        for i in range(half, half + n * calls * size, 4096):
            memory[i] = memory[i - half] ^ 1
        for what, base in (("put", 0), ("get", half)):
            call = store.put if what == "put" else store.get
            for at in range(0, n * calls, n):
                values = [view[base + i * size : base + (i + 1) * size] for i in range(at, at + n)]
                begin = time.perf_counter()
                call(names[at : at + n], values)
                took[what].append(time.perf_counter() - begin)
        wrong = view[: n * calls * size] != view[half : half + n * calls * size]
        store.remove(names)
        told = {f"{what}_us": statistics.median(t) * 1e6 for what, t in took.items()}
        told |= {f"{what}_gb_s": n * calls * size / sum(t) / 1e9 for what, t in took.items()}
        print(json.dumps(told | {"wrong": int(wrong)}), file=answers, flush=True)
    for server in getattr(store, "servers", []):
        server.kill()


class Process:
    def __init__(self, name: str, size: int, folder: Path) -> None:
        folder.mkdir()
        python = os.environ.get(f"TERN_{name.upper()}", sys.executable) if name in ("mooncake", "lmcache") else sys.executable
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [python, __file__, "--serve", name, str(size), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        )  # fmt: skip
        self.missing = self._answer().get("missing", "")

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        if line := self.process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.log.seek(0)
        return {"missing": f"its process has ended: {self.log.read()[-300:].strip()}"}

    def play(self, **ask: int) -> dict[str, Any]:
        assert self.process.stdin
        try:
            print(json.dumps(ask), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass
        return self._answer()

    def end(self) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(READY_S)
        except subprocess.TimeoutExpired:
            self.process.kill()


def measured(size: int, n: int, rounds: int, stores: dict[str, Process], missing: dict[str, str]) -> list[dict[str, Any]]:
    calls = max(1, min(CALLS, BYTES // (size * n)))
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in stores}
    for r in range(rounds + 1):  # the first round touches memory for the first time
        for name in list(stores):
            one = stores[name].play(list=n, round=r, calls=calls)
            if "missing" in one:
                missing[name] = one["missing"]
                stores.pop(name).end()
            elif r > 0:
                told[name].append(one)
    rows = []
    for name in stores:
        row: dict[str, Any] = {"store": name, "value_bytes": size, "list": n, "wrong": sum(one["wrong"] for one in told[name])}
        for what in ("put", "get"):
            for figure in ("us", "gb_s"):
                row[f"{what}_{figure}"] = round(statistics.median(one[f"{what}_{figure}"] for one in told[name]), 3)
            ratios = [one[f"{what}_us"] / ours[f"{what}_us"] for ours, one in zip(told["tern"], told[name])]
            row[f"{what}_ratio"] = [round(of(ratios), 3) for of in (statistics.median, min, max)]
        rows.append(row)
    return rows


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]), sys.argv[4])
        return 0
    options = argparse.ArgumentParser(usage="blocks_beside.py [--quick] [--rounds N] [--sizes N,N...] [--without NAME]...")
    options.add_argument("--quick", action="store_true")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=list(SIZES))
    options.add_argument("--without", action="append", default=[], choices=STORES[1:])
    given = options.parse_args()
    rounds, sizes = (1, given.sizes[:1]) if given.quick else (given.rounds, given.sizes)
    rows: list[dict[str, Any]] = []
    missing = dict.fromkeys(given.without, "it was left out")
    with tempfile.TemporaryDirectory(prefix="tern-beside-") as folder:
        for size in sizes:
            stores: dict[str, Process] = {}
            for name in STORES:
                if name in missing:
                    continue
                stores[name] = Process(name, size, Path(folder) / f"{name}-{size}")
                if stores[name].missing:
                    missing[name] = stores[name].missing
                    stores.pop(name).end()
            for n in LISTS:
                if "tern" in stores:
                    rows += measured(size, n, rounds, stores, missing)
            for one in stores.values():
                one.end()
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0], "rounds": rounds, "rows": rows, "missing": missing}))
    return 1 if "tern" in missing or any(row["wrong"] for row in rows) else 0


sys.exit(main())
