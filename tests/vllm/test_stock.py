"""The assumption of the other tests: stock vLLM's answers repeat to the last bit, and depend on the
KV of single tokens."""

from __future__ import annotations

from instances import Answer


def test_answers_repeat(stock: dict[str, list[Answer]]) -> None:
    for name, (first, second) in stock.items():
        assert first.said == second.said, name
        assert first.cached == second.cached == 0
        assert len(set(first.said[0])) > len(first.said[0]) // 2, f"{name} repeats itself: {first.said[0]}"


def test_answers_depend_on_the_first_token(stock: dict[str, list[Answer]]) -> None:
    base, other = stock["base"][0], stock["other first token"][0]
    assert base.said[1][0] != other.said[1][0]
