"""A stand-in for a vLLM server, with the same answer to the same request: python model_server.py
--port 8001

Tokens are the bytes of each message, between a token for the role and END. `max_tokens` is the
length of the answer.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ROLES = {"system": 1000, "user": 1001, "assistant": 1002, "tool": 1003}
END = 2000
PATTERN = hashlib.shake_256(b"blob").digest(3 << 10)
PATTERN64 = base64.b64encode(PATTERN).decode()
BLOB = "@blob@"


def said(message: dict[str, Any]) -> list[int]:
    return [ROLES[message["role"]], *str(message["content"]).encode(), END]


def prompt_of(messages: list[dict[str, Any]]) -> list[int]:
    return [token for message in messages for token in said(message)] + [ROLES["assistant"]]


def blob_of(n: int) -> bytes:
    return (PATTERN * (n // len(PATTERN) + 1))[:n]


def blob64_of(n: int) -> str:
    whole = n // 3
    return (PATTERN64 * (whole * 4 // len(PATTERN64) + 1))[: whole * 4] + base64.b64encode(blob_of(n)[whole * 3 :]).decode()


def answer_of(asks: dict[str, Any], blob_bytes: int = 0) -> dict[str, Any]:
    """Returns the answer. blob_bytes: size of the blob for each token of prompt and answer; 0: no
    blob. A placeholder
    stands for its base64: see text_of."""
    prompt, n = prompt_of(asks["messages"]), int(asks.get("max_tokens", 16))
    drawn = hashlib.shake_256(json.dumps(prompt).encode()).digest(n)
    content = "".join(chr(ord("a") + byte % 26) for byte in drawn[: n - 1])
    tokens = [*content.encode(), END]
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": content, "refusal": None, "tool_calls": []},
        "finish_reason": "stop",
    }
    if asks.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": "", "logprob": -byte / 64, "top_logprobs": []} for byte in drawn]}
    if asks.get("return_token_ids"):
        choice["token_ids"] = tokens
    if blob_bytes:
        choice["blobs"] = {"hidden": BLOB}
    told: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice]}
    told["usage"] = {"prompt_tokens": len(prompt), "completion_tokens": n, "total_tokens": len(prompt) + n}
    return told | ({"prompt_token_ids": prompt} if asks.get("return_token_ids") else {})


def text_of(told: dict[str, Any], blob_bytes: int) -> bytes:
    tokens = sum(told["usage"][which] for which in ("prompt_tokens", "completion_tokens")) if blob_bytes else 0
    return json.dumps(told).replace(BLOB, blob64_of(tokens * blob_bytes)).encode()


def pieces_of(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the answer as a stream: one piece for each token, and one for the end."""
    (choice,) = told["choices"]
    pieces = []
    for i, token in enumerate(choice["token_ids"]):
        delta = {"content": chr(token) if token != END else ""} | ({} if i else {"role": "assistant"})
        one = {"index": 0, "delta": delta, "logprobs": {"content": [choice["logprobs"]["content"][i]]}, "token_ids": [token]}
        pieces.append({"object": "chat.completion.chunk", "choices": [one]})
    pieces[0]["prompt_token_ids"] = told["prompt_token_ids"]
    end = {key: choice[key] for key in ("finish_reason", "blobs") if key in choice}
    return [*pieces, {"choices": [{"index": 0, "delta": {}, **end}], "usage": told["usage"]}]


class ModelServer(ThreadingHTTPServer):
    """blob_bytes: size of the only blob for each token; 0: no blob
    changes: is applied to each answer before it is sent
    refuses: a status and a body to send in place of an answer
    waits: event that each answer waits for, in the middle of a stream or before all of it; `asked`
    is set when the wait begins
    breaks: end each stream or body before its end
    """

    daemon_threads, request_queue_size = True, 1024

    def __init__(self, port: int = 0, blob_bytes: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Answering)
        self.blob_bytes = blob_bytes
        self.changes: Callable[[dict[str, Any]], Any] = lambda told: told
        self.refuses: tuple[int, bytes] | None = None
        self.breaks = False
        self.asked, self.waits = threading.Event(), threading.Event()
        self.waits.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_GET(self) -> None:
        self.send(200, b"{}")

    def do_POST(self) -> None:
        asks, told = json.loads(self.rfile.read(int(self.headers["Content-Length"]))), self.server
        told.asked.set()
        if told.refuses:
            return self.send(*told.refuses)
        answer = told.changes(answer_of(asks, told.blob_bytes))
        if isinstance(answer, bytes):
            return self.send(200, answer)
        if asks.get("stream"):
            return self.stream([text_of(piece | {"usage": answer["usage"]}, told.blob_bytes) for piece in pieces_of(answer)])
        told.waits.wait()
        self.send(200, text_of(answer, told.blob_bytes))

    def send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Request-Id", "7")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.server.breaks else body)
        self.close_connection = self.server.breaks

    def stream(self, pieces: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = [b"data: %s\n\n" % piece for piece in pieces] + [b"data: [DONE]\n\n"]
        for i, line in enumerate(lines):
            if i == len(lines) // 2:
                self.server.waits.wait()
                if self.server.breaks:
                    self.close_connection = True
                    return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def log_request(self, code: object = "-", size: object = "-") -> None: ...


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="stands for a model server")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--blob-bytes", type=int, default=0, help="of a token")
    arguments = parser.parse_args()
    server = ModelServer(arguments.port, arguments.blob_bytes)
    print(f"ready port={server.server_port}", flush=True)
    server.serve_forever()
