"""LMCache's own adapter of native plug-ins over tern.lmcache, with tensors on the CPU."""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import hashlib
import json
import select
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from daemons import Daemon
from lmcache.v1.check.check_mode_test_l2_adapter import run_test_mode
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.native_plugin_l2_adapter import NativePluginL2AdapterConfig
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.platform import consume_fd

import tern

SHAPE = torch.Size([2, 3, 16, 64])


@pytest.fixture
def adapters(daemon: Daemon) -> Iterator[list[Any]]:
    both = [opened(daemon), opened(daemon, value_bytes=2 * 3 * 16 * 64 * 2)]
    yield both
    for one in both:
        one.close()


def opened(d: Daemon, **more: Any) -> Any:
    params = {"socket": d.socket, "pool_bytes": 4 << 20}
    return create_l2_adapter(
        NativePluginL2AdapterConfig.from_dict(
            {"module_path": "tern.lmcache", "class_name": "TernConnector", "adapter_params": params | more}
        )
    )


def keys(n: int, model: str = "llama", salt: str = "") -> list[Any]:
    return [ObjectKey(hashlib.sha256(bytes([i])).digest(), model, 0, 0, salt) for i in range(n)]


def objects(n: int, seed: int = -1) -> list[Any]:
    made = []
    for i in range(n):
        torch.manual_seed(seed * 100 + i)
        t = (torch.rand(SHAPE) if seed >= 0 else torch.zeros(SHAPE)).to(torch.bfloat16)
        meta = MemoryObjMetadata(SHAPE, torch.bfloat16, t.data_ptr(), t.nbytes, 1, 0, MemoryFormat.KV_2LTD)
        made.append(TensorMemoryObj(t.flatten().view(torch.uint8), meta, None))
    return made


def wait(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(20000)
    consume_fd(fd)


def store(a: Any, ks: list[Any], objs: list[Any]) -> Any:
    task = a.submit_store_task(ks, objs)
    wait(a.get_store_event_fd())
    return a.pop_completed_store_tasks()[task]


def found(a: Any, ks: list[Any]) -> list[bool]:
    task = a.submit_lookup_and_lock_task(ks, {})
    wait(a.get_lookup_and_lock_event_fd())
    bits = a.query_lookup_and_lock_result(task)
    return [bool(bits.test(i)) for i in range(len(ks))]


def load(a: Any, ks: list[Any], objs: list[Any]) -> list[bool]:
    task = a.submit_load_task(ks, objs)
    wait(a.get_load_event_fd())
    bits = a.query_load_result(task)
    return [bool(bits.test(i)) for i in range(len(ks))]


def test_one_stores_and_another_loads(adapters: list[Any]) -> None:
    one, two = adapters
    values = objects(3, 1)
    result = store(one, keys(3), values)
    assert result.is_successful() and int(result) == 3 * values[0].get_size()
    assert found(two, [*keys(4), *keys(1, salt="user")]) == [True] * 3 + [False, False]
    into = objects(4)
    assert load(two, keys(4), into) == [True] * 3 + [False]
    for was, got in zip(values, into):
        assert bytes(was.byte_array) == bytes(got.byte_array)
    one.delete(keys(2))
    assert found(two, keys(3)) == [False, False, True]
    assert one.get_usage() is not None and one.report_status()["is_healthy"]


def test_what_another_host_stored_is_loaded(daemons: tuple[Daemon, Daemon]) -> None:
    size = 2 * 3 * 16 * 64 * 2
    one, two = opened(daemons[0]), opened(daemons[1], value_bytes=size, hosts="any")
    values, into = objects(3, 1), objects(4)
    assert store(one, keys(3), values).is_successful()
    assert found(two, keys(4)) == [True] * 3 + [False] and load(two, keys(4), into) == [True] * 3 + [False]
    assert all(bytes(was.byte_array) == bytes(got.byte_array) for was, got in zip(values, into))
    for each in (one, two):
        each.close()
    with pytest.raises(tern.Invalid, match="'host-c'"):
        opened(daemons[1], value_bytes=size, hosts="host-c")


def test_a_lost_daemon_is_a_miss(daemon: Daemon, adapters: list[Any]) -> None:
    one, two = adapters
    assert store(one, keys(1), objects(1, 1)).is_successful()
    daemon.process.kill()
    daemon.process.wait()
    assert found(two, keys(1)) == [False] and load(two, keys(1), objects(1)) == [False]
    assert not store(one, keys(1), objects(1, 1)).is_successful()


def test_lmcaches_own_check_of_an_adapter(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = {"type": "native_plugin", "module_path": "tern.lmcache", "class_name": "TernConnector"}
    params = {"socket": daemon.socket, "pool_bytes": 32 << 20}
    config = json.dumps(adapter | {"adapter_params": params})
    asyncio.run(run_test_mode("llama", l2_adapter=[config], obj_size=1 << 16, num_keys=20))
    told = capsys.readouterr().out
    for line in ("20/20 correctly absent", "Batch store OK", "20/20 found", "(loaded): 20/20", "(content): 20/20"):
        assert line in told, told


def test_settings_are_checked(daemon: Daemon) -> None:
    with pytest.raises(tern.Invalid, match="'host'"):
        opened(daemon, host="x")
