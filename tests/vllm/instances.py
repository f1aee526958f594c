"""vLLM as a child (serve.py), and a daemon beneath it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

READY_S, END_S = 3600.0, 60.0  # a machine that is busy with other things imports vLLM for minutes
SERVE = Path(__file__).parent / "serve.py"
ENVIRONMENT = dict(os.environ)  # as it was: whoever imports vLLM, as test_stubs.py does, finds it changed


@dataclass(frozen=True)
class Ask:
    """salt: cache_salt
    adapter: number of one that model.py made; 0: none
    steps: behind so many of vLLM's it is given up; 0: it is not
    transfer: kv_transfer_params
    """

    prompt: list[int]
    tokens: int = 24
    salt: str = ""
    adapter: int = 0
    steps: int = 0
    transfer: dict[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """said: token ids, and of each the three best log-probabilities; equal answers are equal to the last bit
    cached: tokens of the prompt that were not computed
    transfer: kv_transfer_params
    """

    said: tuple[list[int], list[Any]]
    cached: int
    transfer: dict[str, Any] | None = None


def tern(socket: str, **extra: object) -> dict[str, Any]:
    """The options that put Tern beneath a vLLM, as docs/vllm.md has them."""
    return {
        "kv_connector": "TernConnector",
        "kv_connector_module_path": "tern.vllm.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"socket": socket, "pool_bytes": "64M", **extra},
    }


class Nursery:
    """The process that instances are forked from."""

    def __init__(self, folder: Path) -> None:
        self.path, self.log = folder / "nursery.sock", folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, SERVE, self.path], env=ENVIRONMENT, stdout=log, stderr=log)
        atexit.register(self.process.kill)
        end = time.monotonic() + READY_S
        while not self.path.exists():
            assert self.process.poll() is None and time.monotonic() < end, self.tail()
            time.sleep(0.1)

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-60:])


class Vllm:
    """It answers from ready() on; until then it may start beside others."""

    port = 0

    def __init__(
        self,
        nursery: Nursery,
        model: Path,
        transfer: dict[str, Any] | None = None,
        engine: dict[str, Any] | None = None,
        **more: object,
    ) -> None:
        self.nursery = nursery
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(nursery.path))
        connection.settimeout(READY_S)
        self._connection = connection
        self._in, self._out = connection.makefile("r"), connection.makefile("w")
        self.pid: int = self._told()["pid"]
        atexit.register(self.kill)
        self._say({"model": str(model), "transfer": transfer, "engine": engine or {}, "port": self.port, **more})

    def _say(self, words: object) -> None:
        print(json.dumps(words), file=self._out, flush=True)

    def _told(self) -> Any:
        line = self._in.readline()
        assert line, f"vLLM has ended\n{self.nursery.tail()}"
        return json.loads(line)

    def ready(self) -> Vllm:
        assert self._told() == {"ready": True}
        return self

    def begin(self, asked: Sequence[Ask]) -> None:
        """All of them at once; answers() waits."""
        self._say([asdict(one) for one in asked])

    def answers(self) -> list[Answer]:
        return [Answer((one["tokens"], one["logprobs"]), one["cached"], one["transfer"]) for one in self._told()]

    def complete(self, prompt: Sequence[int], tokens: int = 24, transfer: dict[str, Any] | None = None) -> Answer:
        self.begin([Ask(list(prompt), tokens, transfer=transfer)])
        return self.answers()[0]

    def counters(self) -> dict[str, int]:
        self._say("counters")
        told: dict[str, int] = self._told()
        return told

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        atexit.unregister(self.kill)

    def stop(self) -> None:
        self._connection.shutdown(socket.SHUT_WR)
        assert self._told() == {"ended": True}
        atexit.unregister(self.kill)


def is_up(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=END_S) as answer:
        return bool(answer.status == 200)
    return False


class Server(Vllm):
    """vLLM's own server, which is asked by HTTP. It is several processes."""

    def __init__(
        self,
        nursery: Nursery,
        model: Path,
        transfer: dict[str, Any],
        port: int,
        engine: dict[str, Any] | None = None,
    ) -> None:
        self.port = port
        super().__init__(nursery, model, transfer, engine)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ready(self) -> Server:
        end = time.monotonic() + READY_S
        while not is_up(self.url):
            assert time.monotonic() < end, self.nursery.tail()
            time.sleep(0.2)
        return self

    def counter(self, name: str) -> int:
        """Of Tern's, as /metrics has them."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=END_S) as answer:
            lines = answer.read().decode().splitlines()
        return int(sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:tern_{name}_total")))

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        atexit.unregister(self.kill)


def ctl(admin: Path, *words: str) -> Any:
    """What ternctl tells, as JSON."""
    told = subprocess.run(
        [Path(os.environ["TERN_BIN"]) / "ternctl", "--socket", admin, *words, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(told.stdout)
