"""A daemon for each test, and SGLang's modules without the imports of its own __init__."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(os.environ["TERN_SOURCE"]) / "client/python/tests"))
from daemons import Daemon, configured, run, start_pair, stop_pair  # noqa: E402

# `import sglang` needs transformers and a GPU's libraries; its modules for host pools and storage
# need only torch.
where = importlib.util.find_spec("sglang")
if where and where.submodule_search_locations:
    package = types.ModuleType("sglang")
    package.__path__ = list(where.submodule_search_locations)
    sys.modules["sglang"] = package


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    one = run(configured(tmp_path / "host-a", "memory: 64M", "page_bytes_min: 256\n"), "host-a")
    yield one
    one.process.kill()
    one.process.wait()


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    pair = start_pair(tmp_path)
    yield pair
    stop_pair(pair)
