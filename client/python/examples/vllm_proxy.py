"""A proxy in front of vLLM instances that prefill and others that decode, over Tern (docs/vllm.md):

    vllm_proxy.py --port 8000 --prefill http://a:8001 --decode http://b:8001 [--prefill ... --decode ...]

Each request goes to a prefill instance for one token, and then to a decode instance with the first one's answer: a ticket
for the prompt's pages. If the prefill fails, the decode instance computes the prompt. An answer that breaks off ends
without its last chunk, and an HTTP client reports that. A client that disconnects ends its request.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

PREFILL_S, DECODE_S, LOOK_S = 120.0, 3600.0, 0.2  # silence until decode computes, until the answer breaks off; poll interval
BODY_BYTES_MAX, PIECE = 64 << 20, 1 << 16
ONE_TOKEN = {"max_tokens": 1, "max_completion_tokens": 1, "min_tokens": 1, "n": 1, "stream": False}
PATHS = ("/v1/completions", "/v1/chat/completions")
HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}


def passed_on(headers: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in HOP]


def is_gone(client: socket.socket) -> bool:
    try:
        return not client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError as why:
        return not isinstance(why, BlockingIOError)


@contextmanager
def asked(client: BaseHTTPRequestHandler, server: str, path: str, body: bytes, silence_s: float) -> Iterator[HTTPResponse]:
    """Yields a server's answer to the client's request. The answer and its computation end when the client disconnects."""
    connection = HTTPConnection(urlsplit(server).netloc, timeout=silence_s)
    connection.connect()
    upstream, ended = connection.sock, Event()  # the answer may own the socket later

    def watch() -> None:
        while not is_gone(client.connection):
            if ended.wait(LOOK_S):
                return
        with suppress(OSError):  # the connection may have ended just now
            upstream.shutdown(socket.SHUT_RDWR)

    Thread(target=watch, daemon=True).start()
    try:
        connection.request("POST", path, body, dict(passed_on(client.headers), Connection="close"))
        with connection.getresponse() as answer:
            yield answer
    finally:
        ended.set()
        connection.close()


def prefill_body(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the request for one token, which asks for a ticket."""
    asks = {name: value for name, value in body.items() if name not in ("stream_options", *ONE_TOKEN)}
    one = {name: value for name, value in ONE_TOKEN.items() if name in ("max_tokens", "stream") or name in body}
    return asks | one | {"kv_transfer_params": {"do_remote_decode": True}}


class Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, prefill: list[str], decode: list[str]) -> None:
        super().__init__(("", port), Handler)
        self.prefill, self.decode = itertools.cycle(prefill), itertools.cycle(decode)  # used in turn


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    error_message_format, error_content_type = "%(explain)s\n", "text/plain"

    def do_GET(self) -> None:
        self.send_error(200 if self.path == "/health" else 404)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path not in PATHS:
            return self.send_error(404, explain=f"the proxy knows {PATHS}")
        if self.request_version != "HTTP/1.1" or not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            return self.send_error(400, explain=f"use HTTP/1.1, with a Content-Length of at most {BODY_BYTES_MAX}")
        try:
            body = json.loads(self.rfile.read(int(length)))
            if not isinstance(body, dict):
                raise ValueError("the request is not a JSON object")
        except ValueError as why:
            return self.send_error(400, explain=str(why))
        told = self.ticket(body)
        if not is_gone(self.connection):
            self.answer(body | ({"kv_transfer_params": told} if told else {}))

    def ticket(self, body: dict[str, Any]) -> Any:
        """Returns the prefill instance's parameters; None: there are none, and the decode instance computes the prompt."""
        server = next(self.server.prefill)
        try:
            with asked(self, server, self.path, json.dumps(prefill_body(body)).encode(), PREFILL_S) as answer:
                if answer.status != 200:
                    raise ValueError(f"it answers {answer.status}")
                return json.load(answer).get("kv_transfer_params")
        except (OSError, HTTPException, ValueError, AttributeError) as why:
            print(f"proxy: {server} did not prefill: {why!r}", file=sys.stderr)

    def answer(self, body: dict[str, Any]) -> None:
        server, begun = next(self.server.decode), False
        try:
            with asked(self, server, self.path, json.dumps(body).encode(), DECODE_S) as answer:
                begun = True
                self.pass_on(answer)
        except (OSError, HTTPException) as why:
            self.close_connection = True  # ends without the last chunk
            print(f"proxy: {server} did not complete its answer: {why!r}", file=sys.stderr)
            if not begun and not is_gone(self.connection):
                self.send_error(502, explain=f"the decode instance does not answer: {why!r}")

    def pass_on(self, answer: HTTPResponse) -> None:
        """Passes the answer on in chunks as they arrive, so that a stream stays one."""
        self.send_response_only(answer.status, answer.reason)
        for name, value in [*passed_on(answer.headers), ("Transfer-Encoding", "chunked")]:
            self.send_header(name, value)
        self.end_headers()
        while piece := answer.read1(PIECE):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if answer.length:  # bytes promised by Content-Length that did not arrive
            raise IncompleteRead(b"", answer.length)
        self.wfile.write(b"0\r\n\r\n")

    def log_request(self, code: object = "-", size: object = "-") -> None: ...


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="one address for vLLM instances that prefill and that decode")
    parser.add_argument("--port", type=int, default=8000)
    for kind in ("--prefill", "--decode"):
        parser.add_argument(kind, action="append", required=True, help="http://HOST:PORT, may be repeated")
    arguments = parser.parse_args()
    Proxy(arguments.port, arguments.prefill, arguments.decode).serve_forever()
