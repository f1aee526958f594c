"""The stand-ins for SGLang's and vLLM's modules in client/python/tests/stubs have the names of the
installed ones."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

STUBS = Path(os.environ["TERN_SOURCE"]) / "client/python/tests/stubs"
MODULES = (
    "sglang.srt.mem_cache.hicache_storage",
    "sglang.srt.observability.metrics_collector",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.kv_offload.base",
    "vllm.v1.kv_offload.tiering.base",
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics",
)


def stub(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"stub_of_{name}", STUBS / f"{name.replace('.', '/')}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", MODULES)
def test_stubs_have_what_is_installed(name: str) -> None:
    ours, real = stub(name), importlib.import_module(name)
    own = [v for v in vars(ours).values() if getattr(v, "__module__", "") == ours.__name__]
    classes = [v for v in own if inspect.isclass(v)]
    assert own
    for function in (v for v in own if inspect.isfunction(v)):
        assert parameters(function) == parameters(getattr(real, function.__name__)), function
    for cls in classes:
        there = getattr(real, cls.__name__)
        if issubclass(cls, enum.Enum):
            assert {m.name: m.value for m in cls}.items() <= {m.name: m.value for m in there}.items(), cls
        elif dataclasses.is_dataclass(cls):
            names = [f.name for f in dataclasses.fields(cls)]
            have = [f.name for f in dataclasses.fields(there)]
            assert [n for n in have if n in names] == names, cls
        for method, function in vars(cls).items():
            made = method.startswith("__") and (dataclasses.is_dataclass(cls) or cls.__name__.endswith("Stats"))
            if inspect.isfunction(function) and not made:
                if not issubclass(cls, enum.Enum):
                    assert parameters(function) == parameters(getattr(there, method)), f"{cls.__name__}.{method}"
