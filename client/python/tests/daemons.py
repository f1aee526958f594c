"""Two linked daemons on this machine, for the tests. TERN_BIN names the folder of ternd."""

from __future__ import annotations

import atexit
import fcntl
import functools
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

READY_S = 60
PORT_FIRST, PORT_BLOCK = 10000, 1024
DIALLING = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass
class Daemon:
    name: str
    socket: str
    process: subprocess.Popen[bytes]


@functools.cache
def port_block() -> Iterator[int]:
    """Returns the ports of a block that only this process has until it ends, in an endless cycle.

    The blocks lie below the kernel's ports for outgoing connections. tests/engine/daemon.c and
    tests/e2e/with_ternd.sh take blocks in the same way.
    """
    end = int(DIALLING.read_text().split()[0])
    firsts = list(range(PORT_FIRST, (end if end > PORT_FIRST + PORT_BLOCK else 65536) - PORT_BLOCK, PORT_BLOCK))
    for first in random.sample(firsts, len(firsts)):
        lock = os.open(f"/tmp/tern-ports-{first}", os.O_RDONLY | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return itertools.cycle(range(first, first + PORT_BLOCK))
    raise RuntimeError("no block of ports is free")


def free_port() -> int:
    """Returns a port that no socket uses and no other test gets; not the same one twice."""
    for port in itertools.islice(port_block(), PORT_BLOCK):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port of the block is free")


def configured(here: Path, tenant: str, more: str = "") -> Path:
    """Creates the folder of a daemon of that name, with its configuration.

    tenant: the tenant's settings beside name and socket
    more: settings of the daemon
    """
    here.mkdir(exist_ok=True)
    (here / "ternd.yaml").write_text(
        f"node: {here.name}\nadmin: {{socket: {here}/admin.sock}}\n{more}"
        f"tenants:\n  - {{name: lm, socket: {here}/lm.sock, {tenant}}}\n"
    )
    return here


def start(folder: Path, name: str, port: int, peer: str, peer_port: int, spill: str = "") -> Daemon:
    """Starts a daemon. spill: folder of its disk tier; "": none."""
    more = f"""insecure_peers: true
page_bytes_min: 256
listen: 127.0.0.1:{port}
peers:
  - {{name: {peer}, address: "127.0.0.1:{peer_port}", tenants: [lm]}}
"""
    if spill:
        more += f"spill: {{dir: {spill}, bytes: 16M, headroom: 0, threads: 1}}\n"
    tenant = "events_tokens: true, memory: 16M, host_memory: 8M, record_memory: 4M"
    return run(configured(folder / name, tenant, more), name)


def run(here: Path, name: str) -> Daemon:
    log = (here / "log").open("wb")
    ternd = Path(os.environ["TERN_BIN"]) / "ternd"
    process = subprocess.Popen([ternd, "--config", here / "ternd.yaml"], stdout=log, stderr=log)
    atexit.register(process.kill)  # however this program ends
    end = time.monotonic() + READY_S
    while b"event=ready" not in (here / "log").read_bytes():
        assert process.poll() is None and time.monotonic() < end, (here / "log").read_text()
        time.sleep(0.02)
    return Daemon(name, f"{here}/lm.sock", process)


def wait_linked(d: Daemon) -> None:
    """Waits until all peers of the daemon can be asked."""
    ternctl = [f"{os.environ['TERN_BIN']}/ternctl", "-s", f"{Path(d.socket).parent}/admin.sock", "peers", "--json"]
    end = time.monotonic() + READY_S
    while any(row["state"] != "up" for row in json.loads(subprocess.check_output(ternctl))["peers"]):
        assert time.monotonic() < end
        time.sleep(0.02)


def start_pair(folder: Path) -> tuple[Daemon, Daemon]:
    """Starts two linked daemons."""
    ports = free_port(), free_port()
    pair = (
        start(folder, "host-a", ports[0], "host-b", ports[1]),
        start(folder, "host-b", ports[1], "host-a", ports[0]),
    )
    for d in pair:
        wait_linked(d)
    return pair


def again(d: Daemon) -> Daemon:
    """Ends a daemon and starts it again with the same configuration."""
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(READY_S) == 0
    return run(Path(d.socket).parent, d.name)


def stop_pair(pair: tuple[Daemon, Daemon]) -> None:
    for d in pair:
        d.process.send_signal(signal.SIGTERM)
    for d in pair:
        assert d.process.wait(READY_S) == 0


def for_blocks(tmp_path: Path, memory: str) -> Iterator[Daemon]:
    """A fixture: one daemon, whose pages may be as small as the tests' blocks."""
    one = run(configured(tmp_path / "host-a", f"memory: {memory}", "page_bytes_min: 4096\n"), "host-a")
    yield one
    one.process.kill()
    one.process.wait()
