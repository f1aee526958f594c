"""Pages for other libraries, on the host and on a GPU, and steps by a CUDA stream. The GPU is the
stand-in's, which
LD_LIBRARY_PATH names: it has memory and streams, and runs only our kernels."""

from __future__ import annotations

import ctypes as ct
import json
import os
import signal
import subprocess
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tern
from daemons import READY_S, Daemon, configured, run
from tern import exchange

SECOND = "GPU-7374616e-6469-6e00-0000-000000000001"  # number 1 of the visible GPUs
KV = tern.Group("kv", page_tokens=16, shape=(2, 16, 4), dtype="float16")
NS = tern.Namespace(model="m")
POOL = 1 << 20


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    tenant = f"memory: 16M, devices: {SECOND}, device_memory: true"
    d = run(configured(tmp_path_factory.mktemp("tern") / "gpu", tenant, "page_bytes_min: 256\n"), "gpu")
    yield d
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(READY_S) == 0


class Standin:
    """The second GPU's context, current in this thread, and a stream of it."""

    def __init__(self) -> None:
        self.calls = ct.CDLL("libcuda.so.1")
        context, stream = ct.c_void_p(), ct.c_void_p()
        assert self.calls.standin_init(0) == 0
        assert self.calls.standin_context_retain(ct.byref(context), 1) == 0
        assert self.calls.standin_context_set(context) == 0
        assert self.calls.standin_stream_create(ct.byref(stream), 1) == 0
        assert stream.value
        self.stream = stream.value

    def hang(self) -> None:
        self.calls.standin_hang(1)

    def go_on(self) -> None:
        self.calls.standin_go_on(1)

    def end(self) -> None:
        assert self.calls.standin_stream_destroy(ct.c_void_p(self.stream)) == 0
        assert self.calls.standin_context_set(None) == 0


@pytest.fixture
def standin() -> Iterator[Standin]:
    s = Standin()
    yield s
    s.go_on()
    s.end()


Destructor = ct.CFUNCTYPE(None, ct.c_void_p)
capsule_at = ct.PYFUNCTYPE(ct.c_void_p, ct.py_object, ct.c_char_p)(("PyCapsule_GetPointer", ct.pythonapi))
capsule_rename = ct.PYFUNCTYPE(ct.c_int, ct.py_object, ct.c_char_p)(("PyCapsule_SetName", ct.pythonapi))
USED = b"used_dltensor"


def managed(capsule: object) -> exchange.DLManagedTensor:
    return exchange.DLManagedTensor.from_address(capsule_at(capsule, b"dltensor"))


def test_view_of_host_memory_is_the_pool_itself(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c:
        pool = c.join("view").open_pool([KV], bytes=POOL)
        view = pool.view("kv")
        assert view.__dlpack_device__() == (1, 0)
        assert not hasattr(view, "__cuda_array_interface__")
        taken = np.from_dlpack(view)
        assert taken.shape == pool.pages("kv").shape and taken.dtype == np.float16
        pool.pages("kv")[3, 1, 2, 3] = 7
        assert taken[3, 1, 2, 3] == 7
        assert taken.ctypes.data == pool.base
        assert len(exchange._held) == 1
        pool.close()
    assert taken[3, 1, 2, 3] == 7  # the array keeps the mapping alive
    del taken
    assert not exchange._held
    with pytest.raises(tern.DaemonLost):
        pool.view("kv")


def test_capsule_that_nobody_takes_holds_the_mapping_no_longer(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c:
        pool = c.join("capsule").open_pool([KV], bytes=POOL)
        handle = weakref.ref(c._handle)
        capsule = pool.view("kv").__dlpack__()
        pool.close()
    assert handle() is not None
    del capsule
    assert not exchange._held
    assert handle() is None


def test_capsule_that_was_taken_holds_it_until_the_deleter_is_called(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c:
        pool = c.join("deleter").open_pool([KV], bytes=POOL)
        handle = weakref.ref(c._handle)
        capsule = pool.view("kv").__dlpack__()
        tensor = managed(capsule)
        pool.close()
    assert capsule_rename(capsule, USED) == 0
    del capsule
    assert handle() is not None
    Destructor(tensor.deleter)(ct.addressof(tensor))
    assert not exchange._held
    assert handle() is None


def test_view_is_never_copied_and_has_a_type(daemons: tuple[Daemon, Daemon]) -> None:
    with tern.connect(daemons[0].socket) as c:
        groups = [KV, tern.Group("swapped", page_tokens=16, shape=(2, 16, 4), dtype=">f2")]
        pool = c.join("types").open_pool(groups, bytes=POOL)
        with pytest.raises(BufferError, match="never copied"):
            pool.view("kv").__dlpack__(copy=True)
        with pytest.raises(BufferError, match="never copied"):
            pool.view("kv").__dlpack__(dl_device=(2, 0))
        with pytest.raises(BufferError, match=">f2"):
            pool.view("swapped").__dlpack__()
        assert pool.view("kv").__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=False, stream=None)
        with pytest.raises(tern.Invalid, match="no group"):
            pool.view("none")
        pool.close()


def test_view_of_a_gpu_says_where_it_lies(gpu: Daemon) -> None:
    with tern.connect(gpu.socket) as c:
        pool = c.join("view").open_pool([KV], bytes=POOL)
        assert (pool.device, pool.ordinal) == (SECOND, 1)
        assert all(row["device_memory"] for row in c.stats()["pools"])
        with pytest.raises(tern.Unsupported, match="Pool.view"):
            pool.pages("kv")
        view = pool.view("kv")
        shape = (pool.nbytes // KV.page_bytes, 2, 16, 4)
        assert view.__dlpack_device__() == (2, 1)
        assert view.__cuda_array_interface__ == {
            "shape": shape,
            "typestr": "<f2",
            "data": (pool.base, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }
        capsule = view.__dlpack__(stream=1)
        tensor = managed(capsule).dl_tensor
        assert (tensor.device.device_type, tensor.device.device_id) == (2, 1)
        assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (2, 16, 1)
        assert (tensor.data, tensor.byte_offset) == (pool.base, 0)
        assert tuple(tensor.shape[: tensor.ndim]) == shape
        assert not tensor.strides
        del capsule
        assert not exchange._held
        pool.close()


def test_step_on_a_stream_is_published_when_the_stream_comes_to_it(gpu: Daemon, standin: Standin) -> None:
    with tern.connect(gpu.socket) as c:
        engine = c.join("steps")
        pool = engine.open_pool([KV], bytes=POOL)
        tokens = list(range(32))
        standin.hang()
        with pool.session(NS) as s:
            s.match(tokens)
            s.extend(allocated=32, written=32)
            with engine.step(stream=standin.stream) as step:
                s.commit(32, step=step)
            with pytest.raises(tern.TimedOut):
                c.wait_published(step, deadline_ms=50)
            assert pool.peek(NS, tokens).resumable == 0
            with pytest.raises(tern.Conflict, match="in a stream"):
                pool.done_step(step + 1)
            standin.go_on()
            c.wait_published(step)
            assert pool.peek(NS, tokens).resumable == 32
            assert pool.done_step_on_stream(step + 1, standin.stream) == "device"
            c.wait_published(step + 1)
        pool.close()


def memory_of(d: Daemon) -> dict[str, int]:
    ctl = Path(os.environ["TERN_BIN"]) / "ternctl"
    env = {**os.environ, "TERN_ADMIN_SOCKET": str(Path(d.socket).parent / "admin.sock")}
    told: dict[str, int] = json.loads(subprocess.check_output([ctl, "status", "--json"], env=env))["memory"]
    return told


def test_checksums_are_brought_where_libtern_has_kernels(gpu: Daemon, standin: Standin) -> None:
    with tern.connect(gpu.socket) as c:
        engine = c.join("checksums")
        pool = engine.open_pool([KV], bytes=POOL)
        with pool.session(NS) as s:
            s.match(list(range(500, 532)))
            s.extend(allocated=32, written=32)
            assert (s.page_refs("kv")[:, 0] == s.table("kv")).all() and s.page_refs("kv")[:, 1].all()
            with pytest.raises(tern.Invalid, match="rows"):
                pool.checksums_on_stream("kv", s.table("kv"), step=1, stream=standin.stream)
            brought, before = 2, memory_of(gpu)
            with engine.step(stream=standin.stream) as step:
                try:
                    pool.checksums_on_stream("kv", s.page_refs("kv"), step=step, stream=standin.stream)
                except tern.Unsupported as e:  # a build without nvcc
                    assert "no kernels" in str(e)
                    brought = 0
                s.commit(32, step=step)
            c.wait_published(step)
            end = time.monotonic() + READY_S
            while memory_of(gpu)["sealed_pages"] < before["sealed_pages"] + 2:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert memory_of(gpu)["checksums_by_engine"] == before["checksums_by_engine"] + brought
        pool.close()


def test_step_on_a_stream_without_its_context_is_refused(gpu: Daemon) -> None:
    with tern.connect(gpu.socket) as c:
        pool = c.join("none").open_pool([KV], bytes=POOL)
        with pytest.raises(tern.Invalid, match="no CUDA context"):
            pool.done_step_on_stream(1, 0)
        with pytest.raises(tern.Invalid, match="stream"):
            pool.done_step_on_stream(1, -1)
        pool.close()
