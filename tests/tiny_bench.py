"""`gfrnn bench --quick` over models of a few units: the fixture `tiny`."""

from __future__ import annotations

import pytest

from gfrnn.bench import clock, contenders, generation, sections
from gfrnn.bench.plan import Plan, Size
from gfrnn.cli import bench

SMALL = Size("lstm", 2, 5)
TINY = Plan(
    "tiny",
    repeats=2,
    least_repeats=2,
    group_seconds=0.0,
    check_flops=1e7,
    backends=("manual",),
    trained=(SMALL,),
    others=(SMALL,),
    full_line_up=False,
    shape=(3, 4),
    minibatches=((2, 3), (3, 4)),
    updated=((2, 3),),
    precise=((2, 3),),
    small=((2, 3),),
    beyond_caches=((Size("gru", 2, 4), 2, 3),),
    square=16,
    rows=(2,),
    memory_bytes=1 << 16,
    generated=4,
    generating=(Size("gru", 2, 4),),
    batches=(1, 8, 16),
    scaling_steps=3,
    steps=(2, 4),
    scaling_rows=2,
    hidden_sizes=(3, 6),
    sizes=((Size("gru", 2, 4), 2, 3),),
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """`gfrnn bench --quick` over models of a few units."""
    monkeypatch.setattr(bench, "QUICK", TINY)
    monkeypatch.setattr(sections, "LSTM", SMALL)
    monkeypatch.setitem(contenders.NAMED_PEER, "lstm", 7)
    monkeypatch.setattr(clock, "SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(generation, "SCORED", 50)
    return TINY
