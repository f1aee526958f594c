"""kv_transfer_params: how a prefill instance hands a prompt over to a decode instance on another
host.

The prefill request has {"do_remote_decode": true}. The prefill answer has the parameters of the
decode request: a ticket, whose pages the prefill host's daemon keeps until the decode host has
fetched them or the ticket expires.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HAND_OVER = "do_remote_decode"
TAKE = "do_remote_prefill"
TICKET, TOKENS = "tern_ticket", "tern_tokens"


@dataclass(frozen=True)
class Handed:
    ticket: str
    tokens: int  # tokens that the ticket has: whole blocks of the prompt

    def params(self) -> dict[str, Any]:
        return {TAKE: True, TICKET: self.ticket, TOKENS: self.tokens}


def wants_hand_over(params: Mapping[str, Any] | None) -> bool:
    return bool(params) and params is not None and params.get(HAND_OVER) is True


def handed(params: Mapping[str, Any] | None, block: int, prompt: int) -> Handed | None:
    """Returns the ticket of a decode request; None: it has none. Raises ValueError if the
    parameters are not those that a prefill instance returned for this prompt."""
    if not params or not params.get(TAKE):
        return None
    ticket, tokens = params.get(TICKET), params.get(TOKENS)
    if not isinstance(ticket, str) or not isinstance(tokens, int) or isinstance(tokens, bool):
        raise ValueError(f"kv_transfer_params lacks {TICKET} or {TOKENS}: pass on the answer of the prefill instance")
    if not 0 < tokens < prompt or tokens % block:
        raise ValueError(f"{TOKENS}={tokens} does not fit this prompt of {prompt} tokens in blocks of {block}")
    return Handed(ticket, tokens)
