"""kv_transfer_params: how a prefill instance hands a prompt over to a decode instance on another host.

The prefill request says {"do_remote_decode": true}. Its answer has what the decode request says, as it is: a ticket,
under which the prefill host's daemon holds the pages until the decode host has them or the ticket's time is over.
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
    tokens: int  # that it brings: whole blocks of the prompt

    def params(self) -> dict[str, Any]:
        return {TAKE: True, TICKET: self.ticket, TOKENS: self.tokens}


def wants_hand_over(params: Mapping[str, Any] | None) -> bool:
    return bool(params) and params is not None and params.get(HAND_OVER) is True


def handed(params: Mapping[str, Any] | None, block: int, prompt: int) -> Handed | None:
    """What a decode request was told, or None where it was told nothing. ValueError: it is not what a prefill said."""
    if not params or not params.get(TAKE):
        return None
    ticket, tokens = params.get(TICKET), params.get(TOKENS)
    if not isinstance(ticket, str) or not isinstance(tokens, int) or isinstance(tokens, bool):
        raise ValueError(f"kv_transfer_params lacks {TICKET} or {TOKENS}: pass on what the prefill instance answered")
    if not 0 < tokens < prompt or tokens % block:
        raise ValueError(f"{TOKENS}={tokens} is not of this prompt of {prompt} tokens, in blocks of {block}")
    return Handed(ticket, tokens)
