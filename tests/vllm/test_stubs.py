"""The stand-ins for vLLM in client/python/tests/stubs have the parameters of the installed vLLM,
and the connector overrides only methods that exist."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tern.vllm.connector import TernConnector
from vllm.distributed.kv_transfer.kv_connector.v1 import base as installed, metrics

STUBS = Path(os.environ["TERN_SOURCE"]) / "client/python/tests/stubs/vllm/distributed/kv_transfer/kv_connector/v1"


def stub(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{installed.__package__}.stub_of_{name}", STUBS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def parameters(function: Any) -> list[tuple[str, Any]]:
    return [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]


def methods(kind: type) -> dict[str, Any]:
    """Returns the methods without names that begin with two underscores, except __init__; class
    methods as they are called."""
    found = {name: value for name, value in vars(kind).items() if inspect.isfunction(value)}
    return found | {name: getattr(kind, name) for name, value in vars(kind).items() if isinstance(value, classmethod)}


def compare(module: ModuleType, real_module: ModuleType) -> int:
    seen = 0
    for name, kind in vars(module).items():
        if inspect.isclass(kind) and kind.__module__ == module.__name__:
            real = getattr(real_module, name)
            for method, ours in methods(kind).items():
                if not method.startswith("__") or method == "__init__":
                    assert parameters(ours) == parameters(getattr(real, method)), f"{name}.{method}"
                    seen += 1
    return seen


def test_stubs_have_the_installed_parameters() -> None:
    base = stub("base")
    assert compare(base, installed) > 15
    assert compare(stub("metrics"), metrics) > 5
    assert [r.name for r in base.KVConnectorRole] == [r.name for r in installed.KVConnectorRole]


def test_the_connector_overrides_what_there_is() -> None:
    for name, ours in methods(TernConnector).items():
        real = getattr(installed.KVConnectorBase_V1, name, getattr(installed.SupportsHMA, name, None))
        if real is None:
            assert name in ("_s", "_w", "_work", "_pool"), f"vLLM has no {name}"
        else:
            assert parameters(ours) == parameters(real), name


def test_nothing_abstract_is_left() -> None:
    assert not getattr(TernConnector, "__abstractmethods__")
