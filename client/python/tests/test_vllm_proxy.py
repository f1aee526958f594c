"""examples/vllm_proxy.py between servers that stand for vLLM."""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from vllm_proxy import Proxy, prefill_body  # noqa: E402

TICKET = {"do_remote_prefill": True, "tern_ticket": "t", "tern_tokens": 96}


class Vllm(HTTPServer):
    """Keeps what it was asked, and says what it was told to."""

    def __init__(self, status: int, says: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.status, self.says = status, says
        self.asked: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    server: Vllm

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(self.server.says)

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
