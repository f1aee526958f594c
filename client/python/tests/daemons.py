"""Two daemons on this machine, which know each other. TERN_BIN names the folder of ternd."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

READY_S = 60


@dataclass
class Daemon:
    name: str
    socket: str
    process: subprocess.Popen[bytes]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def start(folder: Path, name: str, port: int, peer: str, peer_port: int, spill: str = "") -> Daemon:
    """spill: its folder; "": it has no disk tier."""
    here = folder / name
    here.mkdir()
    (here / "ternd.yaml").write_text(
        f"""node: {name}
insecure_peers: true
page_bytes_min: 256
listen: 127.0.0.1:{port}
admin:
  socket: {here}/admin.sock
peers:
  - name: {peer}
    address: 127.0.0.1:{peer_port}
    tenants: [lm]
tenants:
  - name: lm
    socket: {here}/lm.sock
    events_tokens: true
    memory: 16M
    host_memory: 8M
    record_memory: 4M
"""
        + (f"spill: {{dir: {spill}, bytes: 16M, headroom: 0, threads: 1, depth: 1}}\n" if spill else "")
    )
    return run(here, name)


def run(here: Path, name: str) -> Daemon:
    log = (here / "log").open("wb")
    ternd = Path(os.environ["TERN_BIN"]) / "ternd"
    process = subprocess.Popen([ternd, "--config", here / "ternd.yaml"], stdout=log, stderr=log)
    atexit.register(process.kill)  # whatever becomes of this program
    end = time.monotonic() + READY_S
    while b"event=ready" not in (here / "log").read_bytes():
        assert process.poll() is None and time.monotonic() < end, (here / "log").read_text()
        time.sleep(0.02)
    return Daemon(name, f"{here}/lm.sock", process)


def start_pair(folder: Path) -> tuple[Daemon, Daemon]:
    ports = free_port(), free_port()
    return (
        start(folder, "host-a", ports[0], "host-b", ports[1]),
        start(folder, "host-b", ports[1], "host-a", ports[0]),
    )


def again(d: Daemon) -> Daemon:
    """Ends it, and starts it on the same configuration."""
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(READY_S) == 0
    return run(Path(d.socket).parent, d.name)


def stop_pair(pair: tuple[Daemon, Daemon]) -> None:
    for d in pair:
        d.process.send_signal(signal.SIGTERM)
    for d in pair:
        assert d.process.wait(READY_S) == 0
