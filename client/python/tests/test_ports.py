"""Ports of tests that run in parallel: see daemons.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from daemons import DIALLING, PORT_BLOCK, PORT_FIRST, free_port

# Tries the block in argv[1] before all others.
ANOTHER = """
import random, sys, daemons
random.sample = lambda firsts, n: [int(sys.argv[1]), *firsts]
print(daemons.free_port())
"""


def block_of(port: int) -> int:
    return port - (port - PORT_FIRST) % PORT_BLOCK


def test_ports_lie_below_those_that_are_dialled_from() -> None:
    dialled_from = int(DIALLING.read_text().split()[0])
    ports = [free_port() for _ in range(100)]
    assert len(set(ports)) == len(ports) and max(ports) < dialled_from


def test_another_process_takes_another_block() -> None:
    mine = block_of(free_port())
    here = Path(__file__).parent
    printed = subprocess.run([sys.executable, "-c", ANOTHER, str(mine)], cwd=here, capture_output=True, check=True).stdout
    assert block_of(int(printed)) != mine
