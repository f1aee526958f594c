"""Stand-in for vLLM's module of that name."""

DEFAULT_NONE_HASH_SEED = "vllm-none-hash"


def get_none_hash_seed() -> str:
    return DEFAULT_NONE_HASH_SEED
