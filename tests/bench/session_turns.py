"""Compares examples/session_server.py over Tern with the same server that keeps its turns in a dict of its own process:

    session_turns.py kept [--sessions 64 --turns 50]      memory for turns of 1,000 tokens, with blobs of 1,000 B a token
    session_turns.py health [--chats 64 --rounds 5]       /health during as many answers of 1.3 MiB

The model server, the session server, the daemon and the clients are processes of their own. It needs TERN_BIN, TERN_LIBRARY
and the package `tern`; docs/programs.md describes how to run it and has the results.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
PYTHON = HERE.parents[2] / "client/python"
sys.path[:0] = [str(PYTHON / "tests"), str(PYTHON / "examples")]
import numpy as np  # noqa: E402
import tern  # noqa: E402
from daemons import configured, free_port, run  # noqa: E402
from model_server import answer_of  # noqa: E402
from session_server import Refused, Server  # noqa: E402

TURN, ANSWER = 1000, 500  # tokens of a turn, and of its answer
BLOB_BYTES = 1000  # of a token, over all tokens so far
HEALTH_TOKENS, HEALTH_BLOB_BYTES = 1000, 960  # an answer of 1.3 MiB
WAIT_S, PING_S = 600, 0.005
STORES = ("tern", "dict", "dict-two")  # dict-two: a dict that drops all blobs but those of the last two turns, as Tern does


class DictSession:
    def __init__(self, blobs_kept: int) -> None:
        self.blobs_kept, self.turn = blobs_kept, threading.Lock()
        self.kept: list[Any] = []  # length of the list, tokens, log-probabilities, blobs

    def append_record(self, tokens: list[int], logprobs: list[float], blobs: dict[str, bytes]) -> None:
        have = self.kept[-1][0] if self.kept else 0
        if tokens[:have] != [token for _, new, _, _ in self.kept for token in new]:
            raise tern.Conflict("other tokens than were stored")
        self.kept.append((len(tokens), np.array(tokens[have:], np.uint32), np.array(logprobs, np.float32), dict(blobs)))
        for record in self.kept[: -self.blobs_kept]:
            record[3].clear()

    def rollback(self, tokens: list[int], *, step: int) -> None:
        while self.kept and self.kept[-1][0] > len(tokens):
            self.kept.pop()


class DictStore:
    """Stands in for the example's Store, without Tern."""

    def __init__(self, blobs_kept: int) -> None:
        self.lock, self._blobs_kept = threading.Lock(), blobs_kept

    def open(self) -> DictSession:
        return DictSession(self._blobs_kept)

    @contextmanager
    def turn(self, session: DictSession) -> Iterator[DictSession]:
        if not session.turn.acquire(blocking=False):
            raise Refused(409, "a turn is in flight")
        try:
            yield session
        finally:
            session.turn.release()

    def append(self, turn: DictSession, *what: Any) -> None:
        with self.lock:
            turn.append_record(*what)

    def close(self, session: DictSession) -> bool:
        return not session.turn.locked()


def memory(pid: int) -> dict[str, int]:
    """Returns the bytes of a process: its own, shared ones that it has touched, and the peak of both together."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"(RssAnon|RssShmem|VmHWM):\s+(\d+) kB", text))
    return {key: int(value) << 10 for key, value in found.items()}


@contextmanager
def child(*words: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *map(str, words)])
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)


def reachable(port: int, path: str) -> None:
    end = time.monotonic() + WAIT_S
    while True:
        with suppress(OSError):
            http = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
            http.request("GET", path)
            http.getresponse().read()
            return http.close()
        assert time.monotonic() < end, "a server does not start"
        time.sleep(0.05)


class Rig:
    """The servers. port: the session server's"""

    def __init__(self, stack: ExitStack, store: str, blob_bytes: int, record_memory: str) -> None:
        self.socket, self.daemon = "", None
        model, self.port = free_port(), free_port()
        stack.enter_context(child(PYTHON / "tests/model_server.py", "--port", model, "--blob-bytes", blob_bytes))
        words: list[object] = [HERE, "serve", "--store", store, "--blobs-kept", 2 if store == "dict-two" else 1 << 30]
        if store == "tern":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            tenant = f"memory: 1M, record_memory: {record_memory}"
            daemon = run(configured(folder / "host", tenant, "page_bytes_min: 256\n"), "host")
            stack.callback(daemon.process.wait, WAIT_S)
            stack.callback(daemon.process.kill)
            self.daemon, self.socket = daemon.process.pid, daemon.socket
            words = [PYTHON / "examples/session_server.py", "--socket", daemon.socket]
        self.server = stack.enter_context(child(*words, "--port", self.port, "--upstream", f"http://127.0.0.1:{model}")).pid
        for port, path in ((model, "/"), (self.port, "/health")):
            reachable(port, path)

    def records(self) -> int:
        """Returns the bytes of the daemon's record memory that sessions use."""
        if not self.socket:
            return 0
        with tern.connect(self.socket) as connection:
            row = connection.stats()["tenants"][0]["records"]
        return int(row["used"]) * int(row["page_bytes"])


class Client:
    def __init__(self, port: int) -> None:
        self._http = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)

    def asked(self, method: str, path: str, body: Any = None) -> bytes:
        self._http.request(method, path, None if body is None else json.dumps(body))
        with self._http.getresponse() as answer:
            told = answer.read()
        assert answer.status == 200, (answer.status, told[:500])
        return told

    def open(self) -> str:
        return str(json.loads(self.asked("POST", "/sessions"))["session_id"])

    def chat(self, session: str, messages: list[dict[str, Any]], tokens: int) -> int:
        body = {"messages": messages, "max_tokens": tokens, "logprobs": True, "return_token_ids": True}
        return len(self.asked("POST", f"/sessions/{session}/v1/chat/completions", body))


def converse(port: int, sessions: int, turns: int) -> None:
    client = Client(port)
    for n in range(sessions):
        session, messages = client.open(), list[dict[str, Any]]()
        for turn in range(turns):  # a turn is the question, the marks around it, and the answer
            messages.append({"role": "user", "content": f"{n} {turn} ".ljust(TURN - ANSWER - 3, "q")})
            client.chat(session, messages, ANSWER)
            answer = answer_of({"messages": messages, "max_tokens": ANSWER})["choices"][0]["message"]["content"]
            messages.append({"role": "assistant", "content": answer})


def kept(store: str, sessions: int, turns: int, clients: int) -> dict[str, Any]:
    bytes_of_one = 2 * turns * TURN * BLOB_BYTES
    with ExitStack() as stack:
        rig = Rig(stack, store, BLOB_BYTES, str((sessions * bytes_of_one + (clients + 2) * bytes_of_one) * 5 // 4))
        first, began = memory(rig.server), time.monotonic()
        words = ["converse", "--port", rig.port, "--sessions", sessions // clients, "--turns", turns]
        with ExitStack() as several:
            asking = [several.enter_context(child(HERE, *words)) for _ in range(clients)]
            for one in asking:
                assert one.wait() == 0
        now = memory(rig.server)
        return {
            "store": store,
            "sessions": sessions,
            "turns": turns,
            "server_bytes": now["RssAnon"] - first["RssAnon"],
            "server_peak_bytes": now["VmHWM"],
            "record_bytes": rig.records(),
            "daemon_own_bytes": memory(rig.daemon)["RssAnon"] if rig.daemon else 0,
            "seconds": round(time.monotonic() - began, 1),
        }


def pings(port: int, ended: threading.Event) -> list[float]:
    """Returns the seconds of each /health on a connection of its own, one each PING_S if they keep up."""
    found, http = list[float](), HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    while not ended.wait(PING_S):
        began = time.perf_counter()
        http.request("GET", "/health")
        with http.getresponse() as answer:
            answer.read()
        found.append(time.perf_counter() - began)
    return found


def load(port: int, chats: int, rounds: int) -> None:
    """Runs that many clients at once. Each repeats its request: Tern rolls the turn back and stores it anew."""

    def one(n: int) -> None:
        client = Client(port)
        session = client.open()
        for _ in range(rounds):
            size = client.chat(session, [{"role": "user", "content": f"{n:03}"}], HEALTH_TOKENS)
            assert 1.25 * (1 << 20) < size < 1.35 * (1 << 20), size

    threads = [threading.Thread(target=one, args=(n,)) for n in range(chats)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def health(store: str, chats: int, rounds: int) -> dict[str, Any]:
    with ExitStack() as stack:
        rig = Rig(stack, store, HEALTH_BLOB_BYTES, "512M")
        ended = threading.Event()
        threading.Timer(2, ended.set).start()
        idle = pings(rig.port, ended)
        ended.clear()
        times: list[float] = []
        pinging = threading.Thread(target=lambda: times.extend(pings(rig.port, ended)))
        began = time.monotonic()
        pinging.start()
        with child(HERE, "load", "--port", rig.port, "--chats", chats, "--rounds", rounds) as asking:
            assert asking.wait() == 0
        seconds = time.monotonic() - began
        ended.set()
        pinging.join()
        told: dict[str, Any] = {"store": store, "chats": chats, "rounds": rounds, "pings": len(times)}
        told |= {f"p{p}_ms": round(float(np.percentile(times, p)) * 1000, 2) for p in (50, 95, 99)}
        told |= {"idle_p95_ms": round(float(np.percentile(idle, 95)) * 1000, 2), "answers_per_s": round(chats * rounds / seconds, 1)}
        return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kept", "health", "serve", "converse", "load"], help="the last three are its own children")
    parser.add_argument("--store", choices=STORES, action="append", help="all of them unless it is said")
    for name, number in {"sessions": 64, "turns": 50, "clients": 2, "chats": 64, "rounds": 5, "port": 0, "blobs-kept": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--upstream", default="")
    told = parser.parse_args()
    if told.what == "serve":
        Server(told.port, told.upstream, DictStore(told.blobs_kept)).serve_forever()
    elif told.what == "converse":
        converse(told.port, told.sessions, told.turns)
    elif told.what == "load":
        load(told.port, told.chats, told.rounds)
    else:
        for store in told.store or STORES:
            is_kept = told.what == "kept"
            row = kept(store, told.sessions, told.turns, told.clients) if is_kept else health(store, told.chats, told.rounds)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PYTHON), os.environ.get("PYTHONPATH", "")])
    main()
