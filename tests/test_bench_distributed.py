"""`gfrnn bench --distributed` from end to end, over a minibatch of a few characters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gfrnn.bench import distributed
from gfrnn.bench.equality import Unequal
from gfrnn.bench.plan import QUICK
from gfrnn.cli import main


@pytest.mark.slow  # four processes, each of which imports torch; that two train as one does is in test_distributed.py
def test_two_processes_against_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(distributed, "SHAPES", {"quick": ((3, 2),)})
    monkeypatch.setattr(distributed, "CHARACTERS", 12)
    assert main(["bench", "--distributed", "--quick", "--repeats", "2", "--json", "--out", str(tmp_path)]) == 0
    results = json.loads(capsys.readouterr().out)
    (group,) = results["groups"]
    names = [distributed.ONE, distributed.TWO_THREADS, distributed.TWO_PROCESSES]
    assert [timed["name"] for timed in group["timed"]] == names
    assert all(len(timed["seconds"]) == 2 and timed["characters"] == 12 for timed in group["timed"])
    assert [list(ratios) for ratios in results["over_one"]] == [names[1:]]
    (traffic,) = results["traffic"]
    assert traffic["gradient_bytes"] == 4 * 1_301_259
    # Of two processes each sends the gradients once, and a few numbers.
    assert 1 <= traffic["sent_bytes"] / traffic["gradient_bytes"] < 1.01
    assert json.loads((tmp_path / "scaling.json").read_text()) == results
    text = (tmp_path / "scaling.txt").read_text()
    assert "2 processes x 1 thread" in text and "the gradients are 5.205 MB" in text


def test_it_is_a_bench_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--distributed", "--only", "train"]) == 2
    assert "--distributed is a bench of its own" in capsys.readouterr().err


def test_contenders_that_disagree_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake(distributed.Team):
        def __init__(self, size: int, rows: int, length: int) -> None:
            self.size, self.members = size, []

        def update(self, updates: int, threads: int) -> dict[str, float]:
            return {"nats": 5.0, "norm": 1.0 + 0.001 * self.size, "parameters": 1}

    monkeypatch.setattr(distributed, "Team", Fake)
    with pytest.raises(Unequal, match=r"two processes do not train as one does: norm 1.002, not 1.001"):
        distributed.run(QUICK, say=lambda sentence: None)
