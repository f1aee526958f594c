"""A relay as the network between two hosts of a test. It can be cut: connections are reset and new
ones fail. It can be
stalled: connections stay and no bytes come out of them. Bytes that were held up arrive when the
network is restored, as after a partition that TCP has outlived."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections.abc import Coroutine
from threading import Thread
from typing import Any

PIECE = 1 << 16
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset

Address = tuple[str, int]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Network:
    """The network.

    ends: names of the hosts
    rate: bytes a second of each connection in each direction
    carried: bytes that arrived at each host
    """

    def __init__(self, *ends: str, rate: float = math.inf) -> None:
        self.rate = rate
        self._loop = asyncio.new_event_loop()
        self._flows = {end: asyncio.Event() for end in ends}
        self._is_cut, self._connections = False, set[asyncio.Task[Any]]()
        self.carried = dict.fromkeys(ends, 0)
        Thread(target=self._loop.run_forever, daemon=True).start()
        self.restore()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def relay(self, here: Address, there: Address, to: str, back: str) -> None:
        """Relays connections to `here`, from the host `back`, to `there` at the host `to`."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            await self._carry((reader, writer), there, to, back)

        async def listen() -> None:
            await asyncio.start_server(connected, *here)

        self._do(listen())

    async def _carry(self, near: Stream, there: Address, to: str, back: str) -> None:
        ends = [near]
        try:
            if not self._is_cut:
                far = await asyncio.open_connection(*there)
                ends.append(far)
                await asyncio.gather(self._pass(near[0], far[1], to), self._pass(far[0], near[1], back))
        except (OSError, asyncio.CancelledError):
            pass  # the connection is reset, as below
        finally:
            for _, writer in ends:
                sock = writer.get_extra_info("socket")
                if sock and sock.fileno() >= 0:  # the other side may have closed it
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: str) -> None:
        while piece := await reader.read(PIECE):
            await self._flows[to].wait()
            await asyncio.sleep(len(piece) / self.rate)
            self.carried[to] += len(piece)
            writer.write(piece)
            await writer.drain()
        await self._flows[to].wait()
        writer.write_eof()

    def cut(self) -> None:
        async def now() -> None:
            self._is_cut = True
            for task in self._connections:
                task.cancel()

        self._do(now())

    def stall(self, *ends: str) -> None:
        """Stops the bytes towards these hosts, or towards both if none is named."""

        async def now() -> None:
            for end in ends or self._flows:
                self._flows[end].clear()

        self._do(now())

    def restore(self) -> None:
        async def now() -> None:
            self._is_cut = False
            for flow in self._flows.values():
                flow.set()

        self._do(now())
