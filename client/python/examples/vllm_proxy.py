"""A proxy in front of vLLM instances that prefill and others that decode, each kind on hosts of its own, with Tern
beneath (docs/vllm.md):

    vllm_proxy.py --port 8000 --prefill http://a:8001 --decode http://b:8001 [--prefill ... --decode ...]

Each request goes to a prefill instance for one token, and then to a decode instance with what the first has answered:
a ticket for the prompt's pages. A prompt whose prefill fails is computed by the decode instance alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PREFILL_S = 120.0  # after that the decode instance computes the prompt
DECODE_S = 3600.0
PIECE = 1 << 16
ONE_TOKEN = {"max_tokens": 1, "max_completion_tokens": 1, "min_tokens": 1, "n": 1, "stream": False}
PATHS = ("/v1/completions", "/v1/chat/completions")


def post(server: str, path: str, body: dict[str, Any], within_s: float) -> HTTPResponse:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(server + path, json.dumps(body).encode(), headers)
    answer = urllib.request.urlopen(request, timeout=within_s)
    assert isinstance(answer, HTTPResponse)
    return answer


def prefill_body(body: dict[str, Any]) -> dict[str, Any]:
    """The request for one token, which asks for a ticket."""
    asked = {name: value for name, value in body.items() if name not in ("stream_options", *ONE_TOKEN)}
    one = {name: value for name, value in ONE_TOKEN.items() if name in ("max_tokens", "stream") or name in body}
    return asked | one | {"kv_transfer_params": {"do_remote_decode": True}}


class Proxy(ThreadingHTTPServer):
    """Instances of a kind take turns."""

    daemon_threads = True

    def __init__(self, port: int, prefill: list[str], decode: list[str]) -> None:
        super().__init__(("", port), Handler)
        self._prefill, self._decode = itertools.cycle(prefill), itertools.cycle(decode)

    def ticket(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """What the prefill instance hands over; None: nothing, and the decode instance computes the prompt."""
        server = next(self._prefill)
        try:
            with post(server, path, prefill_body(body), PREFILL_S) as answer:
                told: dict[str, Any] | None = json.load(answer).get("kv_transfer_params")
                return told
        except (OSError, ValueError) as why:
            print(f"proxy: {server} did not prefill: {why}", file=sys.stderr)
            return None

    def answer(self, path: str, body: dict[str, Any]) -> HTTPResponse:
        told = self.ticket(path, body)
        return post(next(self._decode), path, body | ({"kv_transfer_params": told} if told else {}), DECODE_S)


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say(200 if self.path == "/health" else 404, iter([b""]), "text/plain")

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path not in PATHS:
            return self._say(404, iter([b"the proxy knows " + " and ".join(PATHS).encode()]), "text/plain")
        try:
            body = json.loads(text)
            if not isinstance(body, dict):
                raise ValueError("the request is no JSON object")
        except ValueError as why:
            return self._say(400, iter([str(why).encode()]), "text/plain")
        try:
            with self.server.answer(self.path, body) as answer:
                kind = answer.headers.get("Content-Type", "application/json")
                self._say(answer.status, iter(lambda: answer.read1(PIECE), b""), kind)
        except urllib.error.HTTPError as why:
            self._say(why.code, iter([why.read()]), why.headers.get("Content-Type", "text/plain"))
        except OSError as why:
            self._say(502, iter([f"no decode instance answers: {why}".encode()]), "text/plain")

    def _say(self, status: int, pieces: Iterator[bytes], kind: str) -> None:
        """In chunks, as they come, so that a stream stays one."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="one address for vLLM instances that prefill and that decode")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--prefill", action="append", required=True, help="http://HOST:PORT, may be repeated")
    parser.add_argument("--decode", action="append", required=True, help="http://HOST:PORT, may be repeated")
    told = parser.parse_args()
    Proxy(told.port, told.prefill, told.decode).serve_forever()


if __name__ == "__main__":
    main()
