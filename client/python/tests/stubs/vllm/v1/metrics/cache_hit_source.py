"""Where the KV of a cached token comes from, for vLLM's metrics."""

import enum


class CacheHitSource(str, enum.Enum):
    HOST = "host"
    EXTERNAL_UNSPECIFIED = "external_unspecified"
