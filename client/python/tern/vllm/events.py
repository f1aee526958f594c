"""KV events of what Tern holds, in vLLM's own form, for routers made for vLLM: `python -m
tern.vllm.events --help`.

It follows the changes of a model's prefixes, without and with the adapters and salts that it is
told of, and publishes them over ZeroMQ as vLLM's ZmqEventPublisher does: (topic, number, batch) on
a PUB socket, and what was sent again on a ROUTER socket. It needs pyzmq and msgspec, which vLLM
brings along.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from ..aio import Async
from ..connection import Connection
from ..errors import DaemonLost, TernError
from ..layout import Namespace
from .event_blocks import DEFAULT_SEED, Adapter, Blocks, Place, Space, Unfit, place_of

BATCH_MAX = 1024  # approximate events of a batch: the events of one change are not divided
REPLAY_BATCHES, REPLAY_BYTES = 10_000, 256 << 20  # the last batches are kept within both limits
HIGH_WATER = 100_000  # batches queued for a subscriber; it misses later ones and can request them
PAUSE_FIRST_S, PAUSE_MOST_S = 0.1, 10.0  # between attempts to connect to a daemon that has ended
END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)


def bound(socket: zmq.Socket[Any], endpoint: str) -> str:
    """Binds the socket, or connects it where vLLM's publisher would. Returns the endpoint."""
    if "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://")):
        socket.bind(endpoint)
    else:
        socket.connect(endpoint)
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


class Publisher:
    """Numbers batches from 0 on, sends them, and keeps the last ones for replays."""

    def __init__(self, endpoint: str, replay: str | None = None, topic: str = "") -> None:
        self._context = zmq.asyncio.Context()
        self._pub = zmq.Socket(self._context, zmq.PUB)  # never blocks
        self._pub.set_hwm(HIGH_WATER)
        self.endpoint = bound(self._pub, endpoint)
        self._router: zmq.asyncio.Socket | None = None
        self.replay = ""
        if replay:
            self._router = self._context.socket(zmq.ROUTER)
            self._router.set_hwm(2 * REPLAY_BATCHES)  # for each subscriber that asks: more would be dropped
            self._router.bind(replay)
            self.replay = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._topic, self._next = topic.encode(), 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._bytes = 0

    def publish(self, events: list[dict[str, Any]]) -> None:
        batch = msgspec.msgpack.encode([time.time(), events, 0])  # 0: the data-parallel rank
        self._pub.send_multipart((self._topic, self._next.to_bytes(8, "big"), batch))
        self._kept.append((self._next, batch))
        self._bytes += len(batch)
        self._next += 1
        while len(self._kept) > REPLAY_BATCHES or self._bytes > REPLAY_BYTES:
            self._bytes -= len(self._kept.popleft()[1])

    async def serve_replays(self) -> None:
        """Answers each number with all kept batches from that number on, and an end."""
        while self._router:
            asked = await self._router.recv_multipart()
            if len(asked) != 3 or len(asked[2]) != 8:
                continue  # no request; vLLM's publisher does not answer it either
            who, first = asked[0], int.from_bytes(asked[2], "big")
            for number, batch in list(self._kept):
                if number >= first:
                    await self._router.send_multipart((who, b"", self._topic, number.to_bytes(8, "big"), batch))
            await self._router.send_multipart((who, b"", b"", END_OF_REPLAY, b""))

    def close(self) -> None:
        self._pub.close(linger=0)
        if self._router:
            self._router.close(linger=0)
        self._context.term()


class Pools:
    """How pools are reported: their groups of vLLM's KV, and their memory. Asks the daemon once a
    pool."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.connection: Connection | None = None
        self._places: dict[int, Place] = {}

    def follow(self, connection: Connection) -> None:
        self.connection = connection
        self._places.clear()

    def place(self, pool: int) -> Place:
        if pool not in self._places and self.connection:
            rows = [row for row in self.connection.stats()["pools"] if row["tier"] == "device"]
            self._places[pool] = place_of([row for row in rows if int(row["pool"], 16) == pool], self.block_size)
        return self._places[pool]


async def follow(requests: Async, ns: Namespace | None, blocks: Blocks, publisher: Publisher) -> None:
    """Publishes the changes that the daemon still has, and then each new one.

    Returns when changes were lost, and raises when the daemon is lost. In both cases it first
    reports that all blocks are cleared.
    """
    loop, due = asyncio.get_running_loop(), False

    def flush() -> None:
        nonlocal due
        due = False
        if events := blocks.events():
            publisher.publish(events)

    begun = False
    try:
        async with aclosing(requests.subscribe(ns, start=1, tokens=True)) as changes:
            async for change in changes:
                if change.lost and begun:
                    why = f"{change.lost} changes were lost; starting again from the current tree"
                    print(f"tern.vllm.events: {why}", file=sys.stderr, flush=True)
                    return
                begun = True
                blocks.take(change)
                if blocks.pending() >= BATCH_MAX:
                    flush()
                elif blocks.pending() and not due:  # all changes that have arrived form one batch
                    due = True
                    loop.call_soon(flush)
    finally:
        blocks.clear()
        flush()


async def bridge(socket: str, pools: Pools, blocks: Blocks, publisher: Publisher) -> None:
    """Follows a daemon, and after its end the next one.

    For several namespaces it subscribes to the whole tenant, so that one subscription has all
    changes in order.
    """
    only = next(iter(blocks.spaces)) if len(blocks.spaces) == 1 else None
    replays = asyncio.create_task(publisher.serve_replays())
    pause = PAUSE_FIRST_S
    blocks.clear()  # an earlier bridge may have reported blocks
    publisher.publish(blocks.events())
    try:
        while True:
            try:
                with Connection(socket) as connection:
                    pools.follow(connection)
                    requests = Async(connection)
                    try:
                        pause = PAUSE_FIRST_S
                        await follow(requests, only, blocks, publisher)
                    finally:
                        requests.close()
            except DaemonLost as why:
                print(f"tern.vllm.events: {why}; retrying", file=sys.stderr, flush=True)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MOST_S)
    finally:
        replays.cancel()


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tern.vllm.events", description=__doc__)
    parser.add_argument("--socket", required=True, help="socket of the tenant, whose events_tokens must be true")
    parser.add_argument("--model", required=True, help="name of the model, as the vLLM instances use it")
    parser.add_argument("--revision", default="", help="revisions of vLLM and the connector that are set, joined by /")
    parser.add_argument("--kv-dtype", default="torch.bfloat16/None", help="the model's dtype and quantization")
    parser.add_argument("--block-size", type=int, required=True, help="vLLM's --block-size")
    parser.add_argument("--seed", default=os.environ.get("PYTHONHASHSEED", DEFAULT_SEED), help="vLLM's PYTHONHASHSEED")
    parser.add_argument(
        "--lora",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="an adapter, as in vLLM's --lora-modules; name all adapters in the same order, which sets their ids",
    )
    parser.add_argument("--salts", metavar="FILE", help="a cache_salt in each line, whose prefixes are published, too")
    parser.add_argument("--whole", action="store_true", help="publish hashes of 32 bytes in place of numbers of 64 bits")
    parser.add_argument("--endpoint", default="tcp://*:5557", help="endpoint at which routers subscribe")
    parser.add_argument("--replay", help="endpoint at which routers request missed events")
    parser.add_argument("--topic", default="")
    told = parser.parse_args(words)
    if told.block_size < 1:
        parser.error("--block-size must be at least 1")
    if wrong := [words for words in told.lora if not all(words.partition("="))]:
        parser.error(f"--lora {wrong[0]}: pass NAME=PATH")
    return told


def spaces_of(told: argparse.Namespace) -> dict[Namespace, Space]:
    """Returns a space for each adapter and none, with each salt and none."""
    named = [words.split("=", 1) for words in told.lora]
    adapters = [Adapter(name, path, i) for i, (name, path) in enumerate(named, 1)]
    salts = Path(told.salts).read_text().splitlines() if told.salts else []
    spaces = [Space(adapter, salt) for adapter in (None, *adapters) for salt in ("", *filter(None, salts))]
    return {space.namespace(told.model, told.revision, told.kv_dtype): space for space in spaces}


def main() -> int:
    told = arguments()
    pools = Pools(told.block_size)
    try:
        blocks = Blocks(told.block_size, spaces_of(told), told.seed, pools.place, told.whole)
    except (OSError, UnicodeDecodeError) as why:
        print(f"tern.vllm.events: --salts {told.salts}: {why}", file=sys.stderr)
        return 1
    try:
        publisher = Publisher(told.endpoint, told.replay, told.topic)
    except zmq.ZMQError as why:
        print(f"tern.vllm.events: {told.endpoint}, {told.replay}: {why}", file=sys.stderr)
        return 1
    try:
        print(f"tern.vllm.events: ready endpoint={publisher.endpoint} replay={publisher.replay}", flush=True)
        asyncio.run(bridge(told.socket, pools, blocks, publisher))
    except (TernError, Unfit) as why:
        print(f"tern.vllm.events: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    finally:
        publisher.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
