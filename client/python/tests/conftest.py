"""Fixtures: two daemons for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from daemons import Daemon, start_pair, stop_pair


@pytest.fixture(scope="session")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    pair = start_pair(tmp_path_factory.mktemp("tern"))
    yield pair
    stop_pair(pair)
