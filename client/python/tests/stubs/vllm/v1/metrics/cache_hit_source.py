"""The source of a cached token's KV, for vLLM's metrics."""

import enum


class CacheHitSource(str, enum.Enum):
    HOST = "host"
    EXTERNAL_UNSPECIFIED = "external_unspecified"
