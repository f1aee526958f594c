"""README.md's code and the examples run unchanged; the package is typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from daemons import Daemon, free_port

HERE = Path(__file__).parents[1]
EXAMPLE = HERE / "examples/two_hosts.py"


def test_readme_runs(daemons: tuple[Daemon, Daemon]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S)
    assert len(blocks) >= 4
    here: dict[str, object] = {"SOCKET": daemons[0].socket}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), here)


def test_two_hosts_runs_and_is_short(daemons: tuple[Daemon, Daemon]) -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line.strip()]
    assert len(lines) <= 45, len(lines)
    told = subprocess.run(
        [sys.executable, EXAMPLE, daemons[0].socket, daemons[1].socket, "host-a"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "every byte as it was written" in told.stdout


def code_lines(c: str) -> list[str]:
    """Returns the lines of C that are neither empty nor only a comment."""
    return [line for line in re.sub(r"/\*.*?\*/", "", c, flags=re.S).splitlines() if line.strip()]


def test_two_hosts_in_c_runs_and_is_short(daemons: tuple[Daemon, Daemon]) -> None:
    source = Path(os.environ["TERN_SOURCE"]) / "client/example/two_hosts.c"
    lines = code_lines(source.read_text())
    assert len(lines) <= 111, len(lines)
    told = subprocess.run(
        [Path(os.environ["TERN_BIN"]) / "two_hosts", daemons[0].socket, daemons[1].socket, "host-a"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, ""), told.stderr
    assert "every byte as it was written" in told.stdout


def test_two_daemons_of_one_machine_as_the_guide_has_them(tmp_path: Path) -> None:
    guide = (Path(os.environ["TERN_SOURCE"]) / "docs/engine-guide.md").read_text()
    (block,) = re.findall(r"```\n(host\(\) \{.*?)```", guide, re.S)
    ports = [free_port(), free_port()]
    for old, new in (("/tmp/", f"{tmp_path}/"), ("build/bin", os.environ["TERN_BIN"])):
        block = block.replace(old, new)
    for i, port in enumerate(ports, 7001):
        block = block.replace(str(i), str(port))
    told = subprocess.run(
        ["bash", "-c", f"trap 'kill $(jobs -p); wait' EXIT\n{block}"],
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "err").open("w"),
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, (tmp_path / "err").read_text()
    assert "every byte as it was written" in told.stdout


def test_types_are_strict() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", HERE / "tern", *HERE.glob("tests/*.py"), *HERE.glob("examples/*.py")],
        cwd=HERE / "tests",
        env=os.environ | {"MYPYPATH": f"{HERE}/tests/stubs:{HERE}/examples"},  # vLLM is not installed here
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout
