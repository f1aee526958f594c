"""The relay that test_kills.py puts between two daemons works as it documents."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from daemons import free_port
from network import Network

NEAR, FAR = "127.0.1.1", "127.0.0.1"
SOON_S, LATE_S = 0.3, 10.0


@pytest.fixture
def echo() -> Iterator[int]:
    """Yields the port of a server that sends back all that it receives."""
    listener = socket.create_server((FAR, 0))

    def serve(one: socket.socket) -> None:
        with one, suppress(ConnectionError):
            while piece := one.recv(4096):
                one.sendall(piece)

    def accept() -> None:
        while True:
            try:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    yield int(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def said(one: socket.socket, word: bytes) -> bytes:
    one.sendall(word)
    return one.recv(4096)


def test_a_network_is_cut_and_stalled_and_restored(echo: int) -> None:
    network, port = Network("a", "b"), free_port()
    network.relay((NEAR, port), (FAR, echo), "a", "b")
    first = socket.create_connection((NEAR, port), LATE_S)
    assert said(first, b"one") == b"one" and network.carried == {"a": 3, "b": 3}

    for ends in ((), ("a",), ("b",)):  # nothing comes out, until later
        network.stall(*ends)
        first.settimeout(SOON_S)
        with pytest.raises(TimeoutError):
            said(first, b"held up")
        first.settimeout(LATE_S)
        network.restore()
        assert first.recv(4096) == b"held up"
    assert network.carried == {"a": 24, "b": 24}

    network.cut()
    with pytest.raises(ConnectionResetError):
        first.recv(4096)
    with socket.create_connection((NEAR, port), LATE_S) as second, suppress(ConnectionError):
        assert said(second, b"lost") == b""
    network.restore()
    with socket.create_connection((NEAR, port), LATE_S) as third:
        assert said(third, b"three") == b"three"
        third.shutdown(socket.SHUT_WR)
        assert third.recv(4096) == b""
