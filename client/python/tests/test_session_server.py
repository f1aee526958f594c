"""examples/session_server.py over a real daemon, before a model server with equal answers to equal
requests."""

from __future__ import annotations

import base64
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any

import pytest
import tern
from daemons import READY_S, Daemon, configured, free_port, run
from model_server import END, ModelServer, answer_of, blob_of, prompt_of, text_of

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import session_server  # noqa: E402
from session_server import NEEDED, Server, Store  # noqa: E402

EXAMPLE = Path(__file__).parents[1] / "examples/session_server.py"
BLOB_BYTES = 40  # for each token
RECORDS = "memory: 1M, record_memory: 4M"
PAGE = "page_bytes_min: 256\n"
CLOSED = (204, 202)  # also 202 if the daemon is slow


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    @contextmanager
    def asked(self, method: str, path: str, body: Any = None) -> Iterator[HTTPResponse]:
        http = HTTPConnection("127.0.0.1", self.port, timeout=READY_S)
        try:
            http.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            with http.getresponse() as answer:
                yield answer
        finally:
            http.close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        with self.asked(method, path, body) as answer:
            return answer.status, answer.read()

    def open(self) -> str:
        status, told = self.ask("POST", "/sessions")
        assert status == 200, told
        return str(json.loads(told)["session_id"])

    def chat(self, session: str, messages: list[dict[str, Any]], **more: Any) -> tuple[int, bytes]:
        return self.ask("POST", f"/sessions/{session}/v1/chat/completions", {"messages": messages, "max_tokens": 8, **more})

    def shown(self, session: str) -> dict[str, Any]:
        status, told = self.ask("GET", f"/sessions/{session}")
        assert status == 200, told
        shown: dict[str, Any] = json.loads(told)
        return shown


class Rig:
    def __init__(self, socket: str) -> None:
        self.model = ModelServer(blob_bytes=BLOB_BYTES)
        self.server = Server(0, self.model.url, Store(socket))
        for one in (self.model, self.server):
            threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        self.client = Client(self.server.server_port)

    @contextmanager
    def chatting(self, session: str, messages: list[dict[str, Any]]) -> Iterator[list[tuple[int, bytes]]]:
        """A chat that the model server delays until `waits` is set. After the block, the list has
        its answer."""
        self.model.waits.clear()
        self.model.asked.clear()
        told: list[tuple[int, bytes]] = []
        thread = threading.Thread(target=lambda: told.append(self.client.chat(session, messages)))
        thread.start()
        assert self.model.asked.wait(READY_S)
        yield told
        self.model.waits.set()
        thread.join(READY_S)

    def end(self) -> None:
        self.model.waits.set()
        for one in (self.server, self.model):
            one.shutdown()
            one.server_close()
        pool = self.server.store._pool
        if pool:
            pool.connection.close()


@contextmanager
def running(folder: Path, tenant: str = RECORDS, more: str = "") -> Iterator[Daemon]:
    daemon = run(configured(folder, tenant, PAGE + more), folder.name)
    yield daemon
    if daemon.process.poll() is None:
        daemon.process.send_signal(signal.SIGTERM)
    daemon.process.wait(READY_S)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("tern") / "chats") as daemon:
        yield daemon


@pytest.fixture
def rig(daemon: Daemon) -> Iterator[Rig]:
    rig = Rig(daemon.socket)
    yield rig
    rig.end()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answered(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the model's message, which is the same each time."""
    message: dict[str, Any] = answer_of({"messages": messages, "max_tokens": 8})["choices"][0]["message"]
    return {"role": "assistant", "content": message["content"]}


def talk(*texts: str) -> list[dict[str, Any]]:
    """Returns a conversation: the user's texts, with the model's answers between."""
    messages: list[dict[str, Any]] = []
    for text in texts:
        messages += [answered(messages)] if messages else []
        messages.append(user(text))
    return messages


def whole(messages: list[dict[str, Any]]) -> bytes:
    """Returns the model server's answer, to the last byte."""
    return text_of(answer_of({"messages": messages, "max_tokens": 8, **NEEDED}, BLOB_BYTES), BLOB_BYTES)


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + READY_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- chats that succeed


def test_chats_are_passed_on_and_kept(rig: Rig) -> None:
    session, other = rig.client.open(), rig.client.open()
    assert rig.client.ask("GET", "/health")[0] == 200
    for n in (1, 2, 3):
        messages = talk(*"abc"[:n])
        with rig.client.asked("POST", f"/sessions/{session}/v1/chat/completions", {"messages": messages, "max_tokens": 8}) as told:
            assert (told.status, told.read(), told.headers["X-Request-Id"]) == (200, whole(messages), "7")
    shown = rig.client.shown(session)
    assert [m["content"] for m in shown["messages"]] == [m["content"] for m in [*talk(*"abc"), answered(talk(*"abc"))]]
    tokens = [token for turn in shown["turns"] for token in turn["tokens"]]
    assert tokens == [*prompt_of(talk(*"abc")), *answered(talk(*"abc"))["content"].encode(), END]
    assert [turn["dropped"] for turn in shown["turns"]] == [["hidden"], [], []]  # M1: the last two records keep their blobs
    last = shown["turns"][-1]
    expected = answer_of({"messages": talk(*"abc"), "max_tokens": 8, **NEEDED})["choices"][0]["logprobs"]["content"]
    assert last["logprobs"] == [0.0] * (len(last["tokens"]) - 8) + [one["logprob"] for one in expected]
    assert last["blobs"] == {"hidden": text_blob(len(tokens))}
    assert rig.client.shown(other) == {"messages": [], "turns": []}
    assert rig.client.ask("DELETE", f"/sessions/{session}")[0] in CLOSED
    assert rig.client.ask("DELETE", f"/sessions/{session}")[0] == 404
    assert rig.client.chat(session, talk("a"))[0] == 404


def text_blob(tokens: int) -> str:
    return base64.b64encode(blob_of(tokens * BLOB_BYTES)).decode()


def test_a_client_that_asks_again_at_once_is_not_refused(rig: Rig) -> None:
    session, messages = rig.client.open(), talk("a")
    http = HTTPConnection("127.0.0.1", rig.server.server_port, timeout=READY_S)
    for n in range(30):
        stream = bool(n % 2)
        body = json.dumps({"messages": messages, "max_tokens": 8, "stream": stream})
        http.request("POST", f"/sessions/{session}/v1/chat/completions", body)
        with http.getresponse() as told:
            assert told.status == 200, (n, told.read())
            told.read()
        messages = [*messages, answered(messages), user("more")]
    http.close()
    assert len(rig.client.shown(session)["turns"]) == 30


def test_a_stream_is_passed_on_and_kept_alike(rig: Rig) -> None:
    session, at_once = rig.client.open(), rig.client.open()
    direct = Client(rig.model.server_port)
    for texts in ("a", "ab"):
        body = {"messages": talk(*texts), "max_tokens": 8, "stream": True, **NEEDED}
        streamed = rig.client.ask("POST", f"/sessions/{session}/v1/chat/completions", body)
        assert streamed == direct.ask("POST", "/v1/chat/completions", body)
        assert rig.client.chat(at_once, talk(*texts))[0] == 200
    shown, alike = rig.client.shown(session), rig.client.shown(at_once)
    assert shown["turns"] == alike["turns"]
    assert [m["content"] for m in shown["messages"]] == [m["content"] for m in alike["messages"]]


def test_a_stream_comes_while_it_is_made(rig: Rig) -> None:
    session = rig.client.open()
    rig.model.waits.clear()
    body = {"messages": talk("a"), "max_tokens": 8, "stream": True}
    with rig.client.asked("POST", f"/sessions/{session}/v1/chat/completions", body) as told:
        assert told.readline().startswith(b"data: ")  # the model server waits in the middle of the stream
        rig.model.waits.set()
        assert told.read().endswith(b"data: [DONE]\n\n")


# ---- one chat in flight


@pytest.mark.parametrize("stream", [False, True])
def test_second_chat_is_409_and_404_while_it_closes(rig: Rig, stream: bool) -> None:
    session, other = rig.client.open(), rig.client.open()
    rig.model.waits.clear()
    rig.model.asked.clear()
    first: list[Any] = []

    def chat() -> None:
        try:
            first.append(rig.client.chat(session, talk("a"), stream=stream))
        except IncompleteRead as why:  # a stream that has begun breaks off
            first.append((404, why.partial))

    thread = threading.Thread(target=chat)
    thread.start()
    assert rig.model.asked.wait(READY_S)
    status, why = rig.client.chat(session, talk("b"))
    assert status == 409 and b"turn" in why
    assert rig.client.ask("GET", f"/sessions/{session}")[0] == 409
    assert rig.client.ask("GET", f"/sessions/{other}")[0] == 200  # other sessions continue
    assert rig.client.ask("DELETE", f"/sessions/{session}")[0] == 202
    assert rig.client.chat(session, talk("b"))[0] == 404
    rig.model.waits.set()
    thread.join(READY_S)
    assert first[0][0] == 404  # nothing of the chat is stored
    assert rig.client.ask("DELETE", f"/sessions/{other}")[0] in CLOSED
    pool = rig.server.store._pool
    assert pool
    until(lambda: pool.connection.stats()["sessions"] == 0)


# ---- clients that disconnect


@pytest.mark.parametrize("at_once", [False, True], ids=["", "just before the end"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_releases_the_session(rig: Rig, stream: bool, at_once: bool) -> None:
    session = rig.client.open()
    assert rig.client.chat(session, talk("a"))[0] == 200
    before = rig.client.shown(session)
    rig.model.waits.clear()
    rig.model.asked.clear()
    body = json.dumps({"messages": talk(*"ab"), "max_tokens": 8, "stream": stream}).encode()
    with socket.create_connection(("127.0.0.1", rig.server.server_port), READY_S) as gone:
        head = f"POST /sessions/{session}/v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        gone.sendall(head.encode() + body)
        assert rig.model.asked.wait(READY_S)
        assert not stream or gone.recv(1) == b"H"
    if at_once:  # the answer arrives before the server has checked whether the client is connected
        rig.model.waits.set()
    until(lambda: rig.client.ask("GET", f"/sessions/{session}")[0] == 200)  # not at_once: while the model server still waits
    rig.model.waits.set()
    assert rig.client.shown(session) == before
    assert rig.client.chat(session, talk(*"ab"))[0] == 200


# ---- answers of the model server


def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(told: dict[str, Any]) -> dict[str, Any]:
        place: Any = told
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        return told

    return change


def content_of(told: dict[str, Any]) -> list[Any]:
    content: list[Any] = told["choices"][0]["logprobs"]["content"]
    return content


CHOICE = ("choices", 0)
unused = at("usage", value=None)
WRONG = {
    "no JSON": lambda told: b"{",
    "a list": lambda told: b"[]",
    "not a number": lambda told: text_of(told, BLOB_BYTES).replace(b'"logprob": -', b'"logprob": NaN, "was": -', 1),
    "no choice": at("choices", value=[]),
    "two choices": lambda told: told | {"choices": told["choices"] * 2},
    "not finished": at(*CHOICE, "finish_reason", value="abort"),
    "no message": at(*CHOICE, "message", value=None),
    "somebody else's message": at(*CHOICE, "message", "role", value="user"),
    "no content": at(*CHOICE, "message", "content", value=7),
    "no token ids": at(*CHOICE, "token_ids", value=None),
    "a token more": lambda told: at(*CHOICE, "token_ids", value=[*told["choices"][0]["token_ids"], 1])(told),
    "a token that is none": at("prompt_token_ids", 0, value=-1),
    "a token that is true": at(*CHOICE, "token_ids", 0, value=True),
    "a token of more than 31 bits": at("prompt_token_ids", 0, value=1 << 31),
    "no prompt": at("prompt_token_ids", value=None),
    "an empty prompt": at("prompt_token_ids", value=[]),
    "other counts": at("usage", "prompt_tokens", value=1),
    "no log-probabilities": at(*CHOICE, "logprobs", value=None),
    "one log-probability less": lambda told: at(*CHOICE, "logprobs", "content", value=content_of(told)[1:])(told),
    "a log-probability above 0": at(*CHOICE, "logprobs", "content", 0, "logprob", value=0.5),
    "a log-probability that is text": at(*CHOICE, "logprobs", "content", 0, "logprob", value="-1"),
    "an infinite log-probability": at(*CHOICE, "logprobs", "content", 0, "logprob", value=-math.inf),
    "blobs that are no base64": at(*CHOICE, "blobs", "hidden", value="?"),
    "blobs that are numbers": at(*CHOICE, "blobs", "hidden", value=7),
    "five blobs": at(*CHOICE, "blobs", value={str(i): "" for i in range(5)}),
    "other tokens of the turn before": at("prompt_token_ids", 1, value=3),
    "fewer tokens than were stored": lambda told: at("prompt_token_ids", value=told["prompt_token_ids"][:3])(unused(told)),
}
AS_STREAM = (
    *("not finished", "blobs that are no base64", "other counts"),
    *("other tokens of the turn before", "a token that is none", "a log-probability above 0"),
)


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_502_and_not_stored(rig: Rig, what: str) -> None:
    session = rig.client.open()
    assert rig.client.chat(session, talk("a"))[0] == 200
    before = rig.client.shown(session)
    rig.model.changes = WRONG[what]
    status, why = rig.client.chat(session, talk(*"ab"))
    assert status == 502, (status, why[:200])
    assert rig.client.shown(session) == before
    rig.model.changes = lambda told: told
    assert rig.client.chat(session, talk(*"ab")) == (200, whole(talk(*"ab")))


def broken_off(rig: Rig, session: str) -> None:
    body = {"messages": talk(*"ab"), "max_tokens": 8, "stream": True}
    with rig.client.asked("POST", f"/sessions/{session}/v1/chat/completions", body) as told:
        with pytest.raises(IncompleteRead) as why:
            told.read()
    assert b"data: " in why.value.partial and b"[DONE]" not in why.value.partial


@pytest.mark.parametrize("what", AS_STREAM)
def test_a_stream_that_is_wrong_breaks_off_and_is_not_stored(rig: Rig, what: str) -> None:
    session = rig.client.open()
    assert rig.client.chat(session, talk("a"))[0] == 200
    before = rig.client.shown(session)
    rig.model.changes = WRONG[what]
    broken_off(rig, session)
    assert rig.client.shown(session) == before
    rig.model.changes = lambda told: told
    rig.model.breaks = True  # in the middle of the answer
    broken_off(rig, session)
    rig.model.breaks = False
    assert rig.client.shown(session) == before
    assert rig.client.chat(session, talk(*"ab"), stream=True)[0] == 200


def test_a_model_server_that_refuses_breaks_off_or_is_not_there(rig: Rig) -> None:
    session = rig.client.open()
    rig.model.refuses = 429, b'{"error": "too many"}'
    with rig.client.asked("POST", f"/sessions/{session}/v1/chat/completions", {"messages": talk("a")}) as told:
        assert (told.status, told.read(), told.headers["X-Request-Id"]) == (*rig.model.refuses, "7")
    rig.model.refuses, rig.model.breaks = None, True
    assert rig.client.chat(session, talk("a"))[0] == 502
    rig.server.upstream = f"http://127.0.0.1:{free_port()}"
    assert rig.client.chat(session, talk("a"))[0] == 502
    rig.server.upstream, rig.model.breaks = rig.model.url, False
    assert rig.client.shown(session) == {"messages": [], "turns": []}
    assert rig.client.chat(session, talk("a"))[0] == 200


# ---- requests of the client


def test_a_request_that_is_wrong_is_400(rig: Rig) -> None:
    session = rig.client.open()
    wrong: list[dict[str, Any]] = [
        {"messages": []},
        {"messages": "a"},
        {"messages": ["a"]},
        {},
        {"messages": talk("a"), "n": 2},
        {"messages": talk("a"), "logprobs": False},
    ]
    for body in wrong:
        status, why = rig.client.ask("POST", f"/sessions/{session}/v1/chat/completions", body)
        assert status == 400 and json.loads(why)["error"]["message"], body
    assert rig.client.ask("POST", f"/sessions/{session}/v1/chat/completions", [1])[0] == 400
    for method, path in (("GET", "/"), ("GET", "/sessions"), ("POST", f"/sessions/{session}"), ("DELETE", "/sessions/none")):
        assert rig.client.ask(method, path)[0] == 404, path
    assert not rig.model.asked.is_set()


# ---- rollback


def test_rollback_by_one_answer(rig: Rig) -> None:
    session = rig.client.open()
    for texts in ("a", "ab"):
        assert rig.client.chat(session, talk(*texts))[0] == 200
    before = rig.client.shown(session)
    rig.model.changes = WRONG["not finished"]
    assert rig.client.chat(session, [*talk(*"ab")[:2], user("x")])[0] == 502  # and nothing is rolled back
    rig.model.changes = lambda told: told
    assert rig.client.shown(session) == before
    edited = [*talk(*"ab")[:2], user("x")]
    assert rig.client.chat(session, edited) == (200, whole(edited))
    shown = rig.client.shown(session)
    assert (shown["turns"][0], len(shown["turns"])) == (before["turns"][0] | {"dropped": []}, 2)
    assert [m["content"] for m in shown["messages"]] == [m["content"] for m in [*edited, answered(edited)]]
    assert rig.client.chat(session, edited)[0] == 200  # the same request again rolls back one turn too
    status, why = rig.client.chat(session, [user("y")])
    assert status == 400 and b"messages continue" in why
    assert rig.client.shown(session) == shown
    first = rig.client.open()
    for _ in range(2):  # each replaces the only turn
        assert rig.client.chat(first, talk("a"))[0] == 200
    assert len(rig.client.shown(first)["turns"]) == 1


# ---- Tern


def test_daemon_that_starts_anew_ends_its_sessions(tmp_path: Path) -> None:
    with running(tmp_path / "chats") as daemon:
        rig = Rig(daemon.socket)
        session, idle = rig.client.open(), rig.client.open()
        assert rig.client.chat(session, talk("a"))[0] == 200
        with rig.chatting(session, talk(*"ab")) as told:
            daemon.process.kill()
            daemon.process.wait(READY_S)
        assert told[0][0] == 404  # the daemon ended during the chat
        assert rig.client.ask("POST", "/sessions")[0] == 503
        with running(tmp_path / "chats") as daemon:
            assert rig.client.chat(session, talk(*"ab"))[0] == 404
            assert rig.client.ask("GET", f"/sessions/{idle}")[0] == 404
            again = rig.client.open()
            assert rig.client.chat(again, talk("a"))[0] == 200
            assert len(rig.client.shown(again)["turns"]) == 1
            rig.end()


def test_a_daemon_that_does_not_answer_ends_the_session(tmp_path: Path) -> None:
    with running(tmp_path / "chats") as daemon:
        rig = Rig(daemon.socket)
        session = rig.client.open()
        assert rig.client.chat(session, talk("a"))[0] == 200
        with rig.chatting(session, talk(*"ab")) as told:
            daemon.process.send_signal(signal.SIGSTOP)
            rig.model.waits.set()
            until(lambda: session not in rig.server.chats)  # whether the record exists is unknown
            assert rig.client.ask("GET", "/health")[0] == 200
            daemon.process.send_signal(signal.SIGCONT)
        assert told[0][0] == 404 and rig.client.chat(session, talk(*"ab"))[0] == 404
        again, pool = rig.client.open(), rig.server.store._pool
        assert pool and rig.client.chat(again, talk("a"))[0] == 200
        until(lambda: pool.connection.stats()["sessions"] == 1)
        rig.end()


def test_busy_and_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_server, "PATIENCE_S", 0.2)
    tenant = "memory: 1M, record_memory: 1M, sessions_max: 3"
    with running(tmp_path / "chats", tenant, "limits: {turn_records: 3}\n") as daemon:
        rig = Rig(daemon.socket)
        first, second, third = (rig.client.open() for _ in range(3))
        assert rig.client.ask("POST", "/sessions")[0] == 507  # the tenant's maximum of sessions
        statuses = [rig.client.chat(first, talk(*"abcdef"[: n + 1]))[0] for n in range(4)]
        assert statuses == [200, 200, 200, 503]  # the maximum of turn_records
        assert len(rig.client.shown(first)["turns"]) == 3
        assert rig.client.chat(second, talk("a"))[0] == 503
        assert rig.client.shown(second) == {"messages": [], "turns": []}
        timer = threading.Timer(0.3, lambda: rig.client.ask("DELETE", f"/sessions/{first}"))
        monkeypatch.setattr(session_server, "PATIENCE_S", READY_S)
        timer.start()
        assert rig.client.chat(second, talk("a"))[0] == 200  # it waited for a record
        rig.model.blob_bytes = 1 << 20
        status, why = rig.client.chat(third, talk("a"))
        assert (status, rig.client.shown(third)) == (507, {"messages": [], "turns": []}), why
        rig.end()


def test_a_chat_longer_than_a_turn_is_not_stored(tmp_path: Path) -> None:
    with running(tmp_path / "chats", RECORDS, "deadlines: {turn_ms: 1000}\n") as daemon:
        rig = Rig(daemon.socket)
        session = rig.client.open()
        with rig.chatting(session, talk("a")) as told:
            until(lambda: rig.client.ask("GET", f"/sessions/{session}")[0] == 200)  # its turn has ended
        assert told[0][0] == 404
        assert rig.client.shown(session) == {"messages": [], "turns": []}
        assert rig.client.chat(session, talk("a"))[0] == 200
        rig.end()


def test_example_runs_and_is_short(daemon: Daemon) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 300
    model, port = ModelServer(blob_bytes=BLOB_BYTES), free_port()
    threading.Thread(target=model.serve_forever, daemon=True).start()
    words = ["--port", str(port), "--upstream", model.url, "--socket", daemon.socket]
    process = subprocess.Popen([sys.executable, EXAMPLE, *words], env=os.environ)
    client = Client(port)

    def ready() -> bool:
        assert process.poll() is None
        try:
            return client.ask("GET", "/health")[0] == 200
        except OSError:
            return False

    try:
        until(ready)
        session = client.open()
        assert client.chat(session, talk("a")) == (200, whole(talk("a")))
        with pytest.raises(tern.TernError):  # the engine's name is taken
            with tern.connect(daemon.socket) as connection:
                connection.join("session-server").open_pool([session_server.UNUSED], bytes=1 << 20)
    finally:
        process.terminate()
        process.wait(READY_S)
        model.shutdown()
        model.server_close()
