"""examples/vllm_proxy.py between servers that stand for vLLM."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, IncompleteRead
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from vllm_proxy import LOOK_S, Proxy, prefill_body  # noqa: E402

TICKET = {"do_remote_prefill": True, "tern_ticket": "t", "tern_tokens": 96}


class Vllm(HTTPServer):
    """Records its requests, and returns the answer that it was given.

    promises: a Content-Length above the length of the answer
    chunked: answers in chunks, without the last one
    waits: waits for its client to disconnect; `left`: the client has
    """

    def __init__(self, status: int, says: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.status, self.says = status, says
        self.promises, self.chunked, self.waits = 0, False, False
        self.asked: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.left = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    server: Vllm
    timeout = 60

    def do_POST(self) -> None:
        told = self.server
        told.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        told.headers.append(self.headers)
        self.send_response(told.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Request-Id", "7")
        if told.promises:
            self.send_header("Content-Length", str(told.promises))
        if told.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(told.says), told.says) if told.chunked else told.says)
        if told.waits:
            self.wfile.flush()
            if not self.connection.recv(1):
                told.left.set()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def three() -> Iterator[tuple[Vllm, Vllm, str]]:
    prefill = Vllm(200, json.dumps({"kv_transfer_params": TICKET}).encode())
    decode = Vllm(200, b'data: {"text": "a"}\n\ndata: [DONE]\n\n')
    proxy = Proxy(0, [prefill.url], [decode.url])
    servers: list[HTTPServer] = [prefill, decode, proxy]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield prefill, decode, f"http://127.0.0.1:{proxy.server_port}"
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(url: str, body: object, path: str = "/v1/completions") -> bytes:
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


BODY = {"prompt": [1, 2, 3], "max_tokens": 9, "stream": True, "stream_options": {"include_usage": True}}


def test_decode_gets_what_prefill_has_answered(three: tuple[Vllm, Vllm, str]) -> None:
    prefill, decode, url = three
    assert ask(url, BODY) == decode.says
    (first,), (second,) = prefill.asked, decode.asked
    assert first == {
        "prompt": [1, 2, 3],
        "max_tokens": 1,
        "stream": False,
        "kv_transfer_params": {"do_remote_decode": True},
    }
    assert second == BODY | {"kv_transfer_params": TICKET}


def test_decode_computes_what_prefill_could_not(three: tuple[Vllm, Vllm, str]) -> None:
    prefill, decode, url = three
    prefill.status = 500
    assert ask(url, BODY) == decode.says
    assert decode.asked == [BODY]


def test_errors_of_decode_are_passed_on(three: tuple[Vllm, Vllm, str]) -> None:
    _, decode, url = three
    decode.status, decode.says = 400, b"too long"
    with pytest.raises(urllib.error.HTTPError) as why:
        ask(url, BODY)
    assert (why.value.code, why.value.read()) == (400, b"too long")
    decode.server_close()
    decode.shutdown()
    with pytest.raises(urllib.error.HTTPError, match="502"):
        ask(url, BODY)


def test_headers_and_status_are_passed_on(three: tuple[Vllm, Vllm, str]) -> None:
    prefill, decode, url = three
    decode.status = 201
    told = {"Content-Type": "application/json", "Authorization": "Bearer k", "Connection": "close"}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(BODY).encode(), told)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert (answer.status, answer.headers["X-Request-Id"], answer.read()) == (201, "7", decode.says)
        assert len(answer.headers.get_all("Server")) == len(answer.headers.get_all("Date")) == 1
    for server in (prefill, decode):
        assert server.headers[0].get_all("Authorization") == ["Bearer k"]
        assert server.headers[0].get_all("Host") == [server.url.removeprefix("http://")]


def test_an_answer_that_breaks_off_does_not_look_complete(three: tuple[Vllm, Vllm, str]) -> None:
    _, decode, url = three
    decode.promises = len(decode.says) + 1
    with pytest.raises(IncompleteRead) as why:
        ask(url, BODY)
    assert why.value.partial == decode.says  # and nothing after it
    decode.promises, decode.chunked = 0, True
    assert raw(url).endswith(b"\r\n%x\r\n%s\r\n" % (len(decode.says), decode.says))


def raw(url: str) -> bytes:
    """Returns all that arrives until the connection is closed."""
    host, port = url.removeprefix("http://").split(":")
    body, answer = json.dumps(BODY).encode(), b""
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        while piece := client.recv(1 << 16):
            answer += piece
    return answer


def test_a_ticket_that_breaks_off_is_none(three: tuple[Vllm, Vllm, str]) -> None:
    prefill, decode, url = three
    prefill.promises = len(prefill.says) + 1
    assert ask(url, BODY) == decode.says
    for prefill.says in (b"[1]", b"{"):
        prefill.promises = len(prefill.says)
        assert ask(url, BODY) == decode.says
    assert decode.asked == [BODY] * 3


@pytest.mark.parametrize("which", [0, 1])
def test_a_client_that_is_gone_ends_its_request(three: tuple[Vllm, Vllm, str], which: int) -> None:
    server, url = (three[0], three[1])[which], three[2]
    server.waits, server.promises = True, len(server.says) + 1
    client = HTTPConnection(url.removeprefix("http://"), timeout=30)
    client.request("POST", "/v1/completions", json.dumps(BODY))
    until(lambda: len(server.asked) == 1)
    assert not server.left.wait(2 * LOOK_S)
    client.close()
    assert server.left.wait(30)
    time.sleep(2 * LOOK_S)
    assert len(three[1].asked) == which  # decode computes nothing for a client that left during prefill


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("head", ["POST /v1/completions HTTP/1.0\r\nContent-Length: 2", "POST /v1/completions HTTP/1.1"])
def test_what_could_not_be_answered_to_the_end_is_refused(three: tuple[Vllm, Vllm, str], head: str) -> None:
    host, port = three[2].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(f"{head}\r\n\r\n{{}}".encode())
        assert b" 400 " in client.recv(100)
    assert not three[0].asked


@pytest.mark.parametrize(("body", "path", "code"), [([1], "/v1/completions", 400), (BODY, "/v1/models", 404)])
def test_what_is_no_request_goes_nowhere(three: tuple[Vllm, Vllm, str], body: object, path: str, code: int) -> None:
    with pytest.raises(urllib.error.HTTPError, match=str(code)):
        ask(three[2], body, path)
    assert not three[0].asked and not three[1].asked


def test_a_chat_keeps_the_name_of_its_limit() -> None:
    asked = prefill_body({"messages": [], "max_completion_tokens": 5, "min_tokens": 3})
    assert (asked["max_completion_tokens"], asked["max_tokens"], asked["min_tokens"]) == (1, 1, 1)


def test_it_is_short() -> None:
    text = (Path(__file__).parents[1] / "examples/vllm_proxy.py").read_text()
    assert len(text.splitlines()) <= 150
