"""The user's settings of Tern, and the checks of a vLLM configuration: unsupported parts are
refused by name before vLLM starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Releases of vLLM whose connector interface this package was tested with.
VERSIONS = ("0.32",)

RANKS = (1, 2, 4, 8)  # numbers of ranks that Tern carries pages between

LOGGER = "vllm.tern"  # vLLM shows the logs of names below its own

KEYS = ("socket", "pool_bytes", "engine", "revision")

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Refused(ValueError):
    """This vLLM cannot keep its KV in Tern as it is configured. The message names what to
    change."""


@dataclass(frozen=True)
class Settings:
    """The connector's settings.

    socket: path of the tenant's socket, as in ternd's configuration
    pool_bytes: bytes, in each rank's memory, of the pool that the instances of this host share
    engine: name of this instance among the daemon's engines
    revision: distinguishes these weights from others of the same name
    """

    socket: str
    pool_bytes: int
    engine: str
    revision: str = ""


def size(what: str, text: object) -> int:
    """Returns a number of bytes, written as in ternd.yaml: digits, then K, M, G or T."""
    found = re.fullmatch(r"([0-9]+)([KMGT]?)", str(text))
    if isinstance(text, bool) or not found or int(found[1]) == 0:
        raise Refused(f'{what}={text!r}: pass a number of bytes, such as 4294967296 or "4G"')
    return int(found[1]) * _UNITS[found[2]]


def settings(extra: Mapping[str, object], engine_id: str, replica: int = 0) -> Settings:
    """Returns the settings in kv_connector_extra_config.

    replica: number of the data-parallel replica; each is an engine of its own. vLLM makes engine_id
    unique among them.

    Raises:
        Refused: a setting is unknown, missing or wrong.
    """
    for key in extra:
        if key not in KEYS:
            raise Refused(f"kv_connector_extra_config has {key!r}: the keys are {', '.join(KEYS)}")
    for key, example in (("socket", '"/run/tern/chat.sock"'), ("pool_bytes", '"4G"')):
        if key not in extra:
            raise Refused(f"kv_connector_extra_config lacks {key!r}: add it, such as {example}")
    engine = str(extra.get("engine", f"vllm-{engine_id}"))
    if "engine" in extra and replica:
        engine += f"_dp{replica}"
    return Settings(
        socket=str(extra["socket"]),
        pool_bytes=size("pool_bytes", extra["pool_bytes"]),
        engine=engine,
        revision=str(extra.get("revision", "")),
    )


def check_version(version: str) -> None:
    if not any(version == v or version.startswith(v + ".") for v in VERSIONS):
        raise Refused(
            f"vLLM {version}: tern.vllm was made for {', '.join(VERSIONS)}, and the connector interface changes "
            "between releases: install one of these"
        )


def check_caller(name: str) -> None:
    """Refuses MultiConnector as the caller that makes the connector.

    MultiConnector does not pass on configuration that matters, such as kv_load_failure_policy, and
    finds statistics only by the names of vLLM's own connectors.
    """
    if name.startswith("MultiConnector."):
        raise Refused("tern.vllm does not work inside MultiConnector: name TernConnector itself as kv_connector")


def check_config(config: Any) -> None:
    """Raises Refused for a VllmConfig that needs a feature which this version does not carry."""
    transfer, parallel, cache = config.kv_transfer_config, config.parallel_config, config.cache_config
    if transfer.kv_load_failure_policy != "recompute":
        raise Refused(
            f"kv_load_failure_policy={transfer.kv_load_failure_policy!r}: use 'recompute', so that a prefix which "
            "cannot be loaded is computed, and no request fails for it"
        )
    if transfer.kv_role != "kv_both":
        raise Refused(f"kv_role={transfer.kv_role!r}: use 'kv_both', the only role of tern.vllm")
    if parallel.tensor_parallel_size not in RANKS:
        raise Refused(f"tensor_parallel_size={parallel.tensor_parallel_size}: tern.vllm supports {', '.join(map(str, RANKS))}")
    for name in (
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
        "nnodes",
    ):
        if getattr(parallel, name) != 1:
            raise Refused(f"{name}={getattr(parallel, name)}: tern.vllm supports 1 only")
    if config.speculative_config is not None:
        raise Refused("tern.vllm does not support speculative decoding: start without speculative_config")
    if config.model_config.is_diffusion:
        raise Refused("tern.vllm does not support diffusion models: the KV of a token changes with those behind it")
    if not config.model_config.is_prefix_caching_supported:
        raise Refused("vLLM cannot reuse prefixes of this model in this mode (a pooling model that needs whole prompts?)")
    if config.model_config.is_multimodal_model:
        raise Refused("tern.vllm does not support multi-modal models: a prefix does not include their images")
    if cache.cache_dtype != "auto":
        raise Refused(f"kv_cache_dtype={cache.cache_dtype!r}: use 'auto'; tern.vllm supports only KV of the model's dtype")
