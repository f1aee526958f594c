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


def configured(here: Path, tenant: str, more: str = "") -> Path:
    """Makes the folder of a daemon of that name, with its configuration. tenant: what its tenant has beside name and
    socket; more: settings of the daemon."""
    here.mkdir(exist_ok=True)
    (here / "ternd.yaml").write_text(
        f"node: {here.name}\nadmin: {{socket: {here}/admin.sock}}\n{more}"
        f"tenants:\n  - {{name: lm, socket: {here}/lm.sock, {tenant}}}\n"
    )
    return here


def start(folder: Path, name: str, port: int, peer: str, peer_port: int, spill: str = "") -> Daemon:
    """spill: its folder; "": it has no disk tier."""
    more = f"""insecure_peers: true
page_bytes_min: 256
listen: 127.0.0.1:{port}
peers:
  - {{name: {peer}, address: "127.0.0.1:{peer_port}", tenants: [lm]}}
"""
    if spill:
        more += f"spill: {{dir: {spill}, bytes: 16M, headroom: 0, threads: 1, depth: 1}}\n"
    tenant = "events_tokens: true, memory: 16M, host_memory: 8M, record_memory: 4M"
    return run(configured(folder / name, tenant, more), name)


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
