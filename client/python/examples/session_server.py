"""A session server: chats with a model server, with their turns kept in Tern (docs/engine-guide.md, "A session server"):

    session_server.py --port 8000 --upstream http://127.0.0.1:8001 --socket /tmp/chat.sock

    POST   /sessions                          {"session_id": ID}
    POST   /sessions/ID/v1/chat/completions   one chat in flight a session; returns the model server's answer unchanged
    GET    /sessions/ID                       messages, and for each turn token ids, log-probabilities and stored blobs
    DELETE /sessions/ID                       204; 202 while a chat is in flight: the session closes when that ends

The model server answers as OpenAI's do, with vLLM's `prompt_token_ids` and `choices[0].token_ids`, a log-probability of each
token, and optionally `choices[0].blobs`: base64 by name, each for all tokens so far.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

import tern
from vllm_proxy import asked, is_gone, passed_on

SILENCE_S, PATIENCE_S = 3600.0, 5.0  # of the model server (a whole chat has deadlines.turn_ms); while Tern is BUSY
REQUEST_BYTES_MAX, ANSWER_BYTES_MAX, BLOBS_MAX = 64 << 20, 1 << 30, 4
NEEDED: dict[str, Any] = {"logprobs": True, "return_token_ids": True}  # added to a request: the answer then has what is stored
WRONG = (ValueError, TypeError, LookupError, AttributeError, RecursionError)  # raised for JSON of another shape
UNUSED = tern.Group("unused", page_tokens=16, shape=(16, 16), dtype="uint8")  # a session needs a pool; it has no KV here
COMPARED = ("role", "content", "name", "tool_calls", "tool_call_id")  # two messages with these equal are the same


class Refused(Exception): ...  # args: a status and a text


class Store:
    """The sessions in Tern. One thread at a time uses its connection, under the lock; no call waits for a chat."""

    def __init__(self, socket: str) -> None:
        self._socket, self.lock = socket, Lock()
        self._pool: tern.Pool | None = None

    def open(self) -> Any:
        with self.lock:
            with suppress(tern.DaemonLost):  # the daemon was restarted
                if self._pool:
                    return self._pool.session(tern.Namespace("session-server"))
            self._pool = tern.connect(self._socket).join("session-server").open_pool([UNUSED], bytes=1 << 20)
            return self._pool.session(tern.Namespace("session-server"))

    @contextmanager
    def turn(self, session: Any) -> Iterator[Any]:
        """Raises Refused 409 if another turn is in flight, and Gone if the session is closed, or closes after that turn."""
        try:
            with self.lock:
                turn = session.turn().__enter__()
        except tern.Busy as why:
            raise Refused(409, why) from None
        try:
            yield turn
        finally:
            with self.lock, suppress(tern.Gone):  # the turn has ended by itself, at deadlines.turn_ms
                turn.__exit__(None, None, None)

    def append(self, turn: Any, tokens: list[int], logprobs: list[float], blobs: dict[str, bytes]) -> Any:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with suppress(tern.Busy), self.lock:
                return turn.append_record(tokens, logprobs, blobs)
            time.sleep(0.002)
        raise Refused(503, f"Tern was BUSY for {PATIENCE_S} s: nothing is stored")

    def close(self, session: Any) -> bool:
        """Returns False if a turn is in flight: the session is GONE for other calls now, and closes after that turn."""
        with self.lock, suppress(tern.TimedOut):
            session.close(step=tern.STEP_NONE, deadline_ms=20)
            return True
        return False


def need(holds: object, what: str) -> None:
    if not holds:
        raise ValueError(what)


def parsed(text: bytes) -> Any:
    return json.loads(text, parse_constant=lambda word: need(False, f"{word} is not JSON"))


def checked(told: Any) -> tuple[Any, list[int], list[int], list[float], dict[str, bytes]]:
    """Returns the message, the prompt's tokens, the answer's, their log-probabilities and the blobs. Raises one of WRONG."""
    need(len(told["choices"]) == 1, "the answer must have one choice")
    choice = told["choices"][0]
    need(choice["finish_reason"] in ("stop", "length", "tool_calls"), "the choice is not finished")
    message, logprobs, blobs = choice["message"], choice["logprobs"], choice.get("blobs") or {}
    need(message["role"] == "assistant" and (type(message["content"]) is str or message["tool_calls"]), "there is no message of the assistant")
    prompt, tokens = told["prompt_token_ids"], choice["token_ids"]
    need(prompt and tokens and all(type(i) is int and 0 <= i < 1 << 31 for i in prompt + tokens), "the answer has no token ids")
    values = [one["logprob"] for one in logprobs["content"]]
    need(len(values) == len(tokens), f"{len(values)} log-probabilities for {len(tokens)} tokens")
    need(all(type(v) in (int, float) and math.isfinite(v) and v <= 0 for v in values), "a log-probability is invalid")
    usage = told.get("usage") or {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
    need((usage["prompt_tokens"], usage["completion_tokens"]) == (len(prompt), len(tokens)), f"usage has other counts of tokens: {usage}")
    need(isinstance(blobs, dict) and len(blobs) <= BLOBS_MAX, f"blobs must be an object with at most {BLOBS_MAX}")
    return message, prompt, tokens, values, {k: base64.b64decode(v, validate=True) for k, v in blobs.items()}


def joined(pieces: list[Any]) -> dict[str, Any]:
    """Joins the pieces of a stream to the answer that a request without a stream returns."""
    told, content, ids, logprobs, choice = dict[str, Any](), "", list[Any](), list[Any](), dict[str, Any]()
    for piece in pieces:
        told |= {key: piece[key] for key in ("prompt_token_ids", "usage") if piece.get(key) is not None}
        for one in piece["choices"]:
            need(one.get("index", 0) == 0 and not one["delta"].get("tool_calls"), "a stream must have one choice, without calls")
            content += one["delta"].get("content") or ""
            ids += one.get("token_ids") or []
            logprobs += (one.get("logprobs") or {}).get("content") or []
            choice |= {key: one[key] for key in ("finish_reason", "blobs") if one.get(key) is not None}
    choice |= {"message": {"role": "assistant", "content": content}, "token_ids": ids, "logprobs": {"content": logprobs}}
    return told | {"choices": [choice]}


@dataclass
class Chat:
    """A session, changed only by the owner of its turn. ends: after each turn, the number of messages and tokens so far"""

    session: Any
    messages: list[dict[str, Any]] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    def goes_on(self, messages: list[dict[str, Any]]) -> int:
        """Returns the number of turns that stay: all, or all but the last, which is rolled back."""
        for turns in (len(self.ends) - 1, len(self.ends) - 2)[: len(self.ends)]:
            have = self.ends[turns][0]
            pairs = zip(messages[:have], self.messages)
            if len(messages) > have and all((a.get(k) or None) == (b.get(k) or None) for a, b in pairs for k in COMPARED):
                return turns
        raise Refused(400, "the messages continue neither the whole chat nor the chat without its last turn")

    def keep(self, store: Any, turn: Any, turns: int, messages: list[dict[str, Any]], answer: Any) -> None:
        (message, prompt, ids, logprobs, blobs), have = answer, self.ends[turns]
        try:
            if turns < len(self.ends) - 1:
                with store.lock:
                    turn.rollback(prompt[: have[1]], step=tern.STEP_NONE)
                del self.ends[turns + 1 :], self.messages[have[0] :]
            store.append(turn, prompt + ids, [0.0] * (len(prompt) - have[1]) + logprobs, blobs)  # 0.0: the prompt has none
        except (tern.Conflict, tern.Invalid, tern.Malformed) as why:  # such as other tokens for earlier messages
            raise Refused(502, why) from None
        except tern.Gone as why:  # the session closes with this turn, or the turn has ended at deadlines.turn_ms
            raise Refused(404, why) from None
        self.messages = [*messages, message]
        self.ends.append((len(self.messages), len(prompt + ids)))


class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 1024

    def __init__(self, port: int, upstream: str, store: Any) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.upstream, self.store, self.chats = upstream, store, dict[str, Chat]()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # OSError: the client has disconnected
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version, disable_nagle_algorithm, begun = "HTTP/1.1", True, False  # begun: the head of an answer was sent

    def log_request(self, code: object = "-", size: object = "-") -> None: ...

    def do(self) -> None:
        self.begun, path = False, self.path.strip("/").split("/")
        try:
            self.routed(path, self.body())
        except Refused as why:
            self.failed(*why.args)
        except (tern.Gone, tern.DaemonLost, tern.TimedOut) as why:  # the session has ended, or its state is unknown: end it
            if chat := self.server.chats.pop(path[1] if len(path) > 1 else "", None):
                with suppress(tern.TernError):
                    self.server.store.close(chat.session)
            self.failed(404 if len(path) > 1 else 503, why)
        except tern.TernError as why:
            self.failed({"BUSY": 503, "QUOTA": 507}.get(why.kind, 500), why)

    do_GET = do_POST = do_DELETE = do

    def head(self, status: int, headers: Any, *more: tuple[str, str]) -> None:
        self.begun = True
        self.send_response_only(status)
        for name, value in [*passed_on(headers), *more]:
            self.send_header(name, value)
        self.end_headers()

    def send(self, status: int, body: bytes, headers: Any = None) -> None:
        self.head(status, headers or {"Content-Type": "application/json"}, ("Content-Length", str(len(body))))
        self.wfile.write(body)

    def piece(self, data: bytes, last: bytes = b"") -> None:
        self.wfile.write(b"%x\r\n%s\r\n%s" % (len(data), data, last))

    def failed(self, status: int, why: object) -> None:
        if not self.begun and not is_gone(self.connection):
            return self.send(status, json.dumps({"error": {"message": str(why), "code": status}}).encode())
        self.close_connection = True  # a stream ends without its last chunk, and an HTTP client reports that
        print(f"session server: {self.path}: {status}: {why}", file=sys.stderr, flush=True)

    def body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if length.isdecimal() and int(length) <= REQUEST_BYTES_MAX and "Transfer-Encoding" not in self.headers:
            return self.rfile.read(int(length))
        self.close_connection = True
        raise Refused(400, f"send a Content-Length of at most {REQUEST_BYTES_MAX}")

    def routed(self, path: list[str], body: bytes) -> None:
        store, chats = self.server.store, self.server.chats
        if (self.command, path) == ("GET", ["health"]):
            return self.send(200, b"{}")
        if (self.command, path) == ("POST", ["sessions"]):
            chats[name := secrets.token_hex(16)] = Chat(store.open())
            return self.send(200, json.dumps({"session_id": name}).encode())
        chat, what = chats.get(path[1]) if path[0] == "sessions" and path[1:] else None, (self.command, *path[2:])
        if not chat or what not in (("DELETE",), ("GET",), ("POST", "v1", "chat", "completions")):
            raise Refused(404, "there is no such session, or no such path")
        if what == ("DELETE",):
            del chats[path[1]]
            return self.send(204 if store.close(chat.session) else 202, b"")
        with store.turn(chat.session) as turn:
            end = self.chat(chat, turn, body) if self.command == "POST" else self.show(chat, turn)
        end()  # after the turn: a client that has its answer may ask again at once

    def show(self, chat: Chat, turn: Any) -> Callable[[], None]:
        with self.server.store.lock:
            records = turn.records()
        turns: list[Any] = [{"tokens": r.tokens.tolist(), "logprobs": r.logprobs.tolist(), "dropped": r.dropped} for r in records]
        for told, r in zip(turns, records):
            told["blobs"] = {name: base64.b64encode(blob).decode() for name, blob in r.blobs.items()}
        return lambda: self.send(200, json.dumps({"messages": chat.messages, "turns": turns}).encode())

    def chat(self, chat: Chat, turn: Any, body: bytes) -> Callable[[], None]:
        try:
            asks = parsed(body)
            messages = asks["messages"]
            need(isinstance(messages, list) and all(isinstance(m, dict) for m in messages), "messages must be a list of objects")
            need(asks.get("n", 1) == 1 and all(asks.get(k, v) == v for k, v in NEEDED.items()), f"n must be 1, and {NEEDED} is needed")
        except WRONG as why:
            raise Refused(400, f"{type(why).__name__}: {why}") from None
        turns = chat.goes_on(messages)
        body = body if NEEDED.items() <= asks.items() else json.dumps(asks | NEEDED).encode()
        try:
            with asked(self, self.server.upstream, "/v1/chat/completions", body, SILENCE_S) as answer:
                streams = answer.status == 200 and answer.headers.get_content_type() == "text/event-stream"
                pieces, rest = self.streamed(answer) if streams else ([], answer.read(ANSWER_BYTES_MAX))
                need(not answer.length, "the answer broke off, or is too long")
            told = checked(joined(pieces) if streams else parsed(rest)) if answer.status == 200 else None
        except (OSError, HTTPException) as why:
            raise Refused(502, f"the model server did not complete its answer: {why!r}") from None
        except WRONG as why:
            raise Refused(502, f"the model server's answer is not stored: {type(why).__name__}: {why}") from None
        if is_gone(self.connection):
            raise Refused(499, "the client has gone: nothing is stored")
        if told:
            chat.keep(self.server.store, turn, turns, messages, told)
        if streams:
            return lambda: self.piece(rest, b"0\r\n\r\n")
        return lambda: self.send(answer.status, rest, answer.headers)

    def streamed(self, answer: HTTPResponse) -> tuple[list[Any], bytes]:
        """Passes on a stream as it arrives, except its end, which waits until the turn is stored."""
        self.head(200, answer.headers, ("Transfer-Encoding", "chunked"))
        pieces, left = list[Any](), ANSWER_BYTES_MAX
        while line := answer.readline(left):
            if line.startswith(b"data: [DONE]"):
                return pieces, line + answer.read()
            self.piece(line)
            if line.startswith(b"data:"):
                pieces.append(parsed(line[5:]))
            left -= len(line)
        raise ValueError("the stream has no end, or is too long")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="chats with a model server; Tern stores their turns")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--upstream", required=True, help="the model server, http://HOST:PORT")
    parser.add_argument("--socket", required=True, help="the socket of a tenant with record_memory")
    arguments = parser.parse_args()
    Server(arguments.port, arguments.upstream, Store(arguments.socket)).serve_forever()
