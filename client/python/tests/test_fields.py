"""Pools that describe the fields of their pages exchange pages, even if the two layouts differ."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import tern
from daemons import Daemon
from test_engine import ns

LAYERS, PAGE, HEADS, DIM = 2, 16, 4, 8
TOKENS = range(9000, 9000 + 2 * PAGE)
POOL = 1 << 20


def kv(heads: int = HEADS, heads_first: bool = False) -> tern.Group:
    """Returns a group of tokens of heads or, with heads_first, of heads of tokens."""
    row = DIM * 4
    token, head = (row, PAGE * row) if heads_first else (heads * row, row)
    axes = (
        tern.Axis("layer", LAYERS, PAGE * heads * row),
        tern.Axis("token", PAGE, token),
        tern.Axis("head", heads, head),
        tern.Axis("dim", DIM, 4),
    )
    shape = (LAYERS, heads, PAGE, DIM) if heads_first else (LAYERS, PAGE, heads, DIM)
    return tern.Group("kv", page_tokens=PAGE, shape=shape, fields=(tern.Field("kv", axes, 4),))


def content(page: int) -> npt.NDArray[np.float32]:
    """Returns a page's content, as tokens of heads."""
    n = LAYERS * PAGE * HEADS * DIM
    return np.arange(page * n, (page + 1) * n, dtype=np.float32).reshape(LAYERS, PAGE, HEADS, DIM)


def put(d: Daemon, salt: str) -> None:
    with tern.connect(d.socket) as c:
        pool = c.join(f"prefill-{salt}").open_pool([kv()], bytes=POOL)
        with pool.session(ns(salt)) as s:
            s.match(TOKENS)
            s.extend(written=len(TOKENS), allocated=len(TOKENS))
            with pool.engine.step() as step:
                for i, page in enumerate(s.table("kv")):
                    pool.pages("kv")[page] = content(i)
                s.commit(len(TOKENS), step=step)
            c.wait_published(step)


def test_pages_come_in_the_order_of_the_pool_that_fetches(daemons: tuple[Daemon, Daemon]) -> None:
    put(daemons[0], "fields")
    with tern.connect(daemons[1].socket) as c:
        pool = c.join("decode").open_pool([kv(heads_first=True)], bytes=POOL)
        with pool.session(ns("fields")) as s:
            s.match(TOKENS)
            s.fetch(daemons[0].name, at_least=len(TOKENS), step=tern.STEP_NONE)
            assert s.committed == len(TOKENS)
            for i, page in enumerate(s.table("kv")):
                assert np.array_equal(pool.pages("kv")[page], content(i).swapaxes(1, 2))


def test_what_does_not_fit_is_refused_by_name(daemons: tuple[Daemon, Daemon]) -> None:
    put(daemons[0], "other-heads")
    with tern.connect(daemons[1].socket) as c:
        engine = c.join("decode-other")
        with pytest.raises(tern.Invalid, match="the ranks of a pipeline stage"):
            engine.open_pool([kv()], bytes=POOL, stages=3)
        pool = engine.open_pool([kv(heads=2)], bytes=POOL)
        with pool.session(ns("other-heads")) as s:
            s.match(TOKENS)
            with pytest.raises(tern.Unsupported, match="different number of heads"):
                s.fetch(daemons[0].name, at_least=len(TOKENS), step=tern.STEP_NONE)
