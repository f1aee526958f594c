"""Stand-in for vLLM's module of that name."""

from __future__ import annotations


class OffloadingConnectorStats:
    def __init__(self) -> None:
        self.counters: dict[tuple[str, tuple[str, ...]], float] = {}

    def is_empty(self) -> bool:
        return not self.counters

    def increase_counter(
        self, counter_name: str, counter_increase_value: int | float = 1, labelvalues: tuple[str, ...] = ()
    ) -> None:
        at = counter_name, labelvalues
        self.counters[at] = self.counters.get(at, 0) + counter_increase_value
