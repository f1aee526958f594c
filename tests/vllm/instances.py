"""vLLM as a child process (serve.py) over a daemon."""

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

READY_S, END_S = 3600.0, 60.0  # a busy machine imports vLLM for minutes
SERVE = Path(__file__).parent / "serve.py"
ENVIRONMENT = dict(os.environ)  # the original one: an import of vLLM, as in test_stubs.py, changes it


@dataclass(frozen=True)
class Ask:
    """A request.

    salt: cache_salt
    adapter: number of an adapter that model.py made; 0: none
    steps: the request is aborted after so many steps of vLLM; 0: never
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
    """An answer.

    said: token ids, and the three best log-probabilities of each; equal answers are equal to the
    last bit
    cached: tokens of the prompt that were not computed
    transfer: kv_transfer_params
    """

    said: tuple[list[int], list[Any]]
    cached: int
    transfer: dict[str, Any] | None = None


def tern(socket: str, **extra: object) -> dict[str, Any]:
    """Returns the options with which a vLLM uses Tern, as in docs/vllm.md."""
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
    """An instance. It may start beside others, and answers once ready() has returned."""

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
        """Sends all requests at once; answers() waits for them."""
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
    """vLLM's own server, which consists of several processes, over HTTP."""

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
        """Returns one of Tern's counters from /metrics."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=END_S) as answer:
            lines = answer.read().decode().splitlines()
        return int(sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:tern_{name}_total")))

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        atexit.unregister(self.kill)


def ctl(admin: Path, *words: str) -> Any:
    """Returns the JSON that ternctl prints."""
    told = subprocess.run(
        [Path(os.environ["TERN_BIN"]) / "ternctl", "--socket", admin, *words, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(told.stdout)
