"""What torch can run in bfloat16 is asked of copies of the process: the bench survives whatever happens to them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_bench import SMALL, tiny
from torch import nn

from gfrnn.bench import contenders, precision, probe, sections
from gfrnn.bench.plan import Plan
from gfrnn.cli import main

__all__ = ["tiny"]
Capture = pytest.CaptureFixture[str]
Outcome = tuple[str, int | None]
FINE: Outcome = ("", 0)
DEAD: Outcome = ("", -signal.SIGILL)
DIES = "torch dies of it on this CPU: SIGILL (Illegal instruction)"
copies = pytest.mark.skipif(not probe.COPIES, reason="processes are copied on Linux alone")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (probe.VARIABLE, probe.OLD_VARIABLE):
        monkeypatch.setenv(name, "")


def pretend(monkeypatch: pytest.MonkeyPatch, outcome: Callable[[Mapping[str, str]], Outcome]) -> list[dict[str, str]]:
    """Every copy ends as `outcome` says of its setting; the settings that were tried."""
    tried: list[dict[str, str]] = []

    def ended(work: probe.Work, setting: Mapping[str, str]) -> Outcome:
        tried.append(dict(setting))
        return outcome(setting)

    monkeypatch.setattr(probe, "COPIES", True)
    monkeypatch.setattr(probe, "outcome", ended)
    return tried


def needs_setting(setting: Mapping[str, str]) -> Outcome:
    return FINE if setting.get(probe.VARIABLE) or os.environ[probe.VARIABLE] else DEAD


def illegal() -> None:
    os.kill(os.getpid(), signal.SIGILL)


def refuse() -> None:
    raise RuntimeError("could not create a primitive. Run it with ONEDNN_VERBOSE=all")


@copies
def test_a_signal_is_reported_and_not_raised(capfd: Capture) -> None:
    assert probe.why_not(illegal) == DIES
    assert probe.why_not(refuse) == "could not create a primitive"
    assert probe.why_not(lambda: None) == ""
    assert probe.why_not(lambda: 1 // 0) == "the process that tried it ended with exit code 1"
    assert capfd.readouterr() == ("", "")


@copies
def test_what_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 0.2)
    started = time.monotonic()
    assert probe.why_not(lambda: time.sleep(60)) == "torch was not done with it after 0 seconds"
    assert time.monotonic() - started < 30


@copies
def test_a_setting_is_tried_in_the_copy_alone() -> None:
    def work() -> None:
        if os.environ[probe.VARIABLE] != probe.WITHOUT_AMX:
            illegal()

    assert probe.why_not(work) == DIES
    assert probe.why_not(work, {probe.VARIABLE: probe.WITHOUT_AMX}) == ""
    assert os.environ[probe.VARIABLE] == ""


@copies
def test_a_copy_works_also_where_several_threads_have_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 60.0)
    torch.set_num_threads(2)
    model, ids = contenders.build("nn.LSTM 2x64", SMALL), contenders.batch(64, 20)
    contenders.train_step(model, *ids)
    assert probe.why_not(lambda: contenders.train_step(model, *ids)) == ""


def test_elsewhere_an_error_is_caught_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = pretend(monkeypatch, lambda setting: DEAD)
    monkeypatch.setattr(probe, "COPIES", False)
    done: list[str] = []
    works = {"a": refuse, "b": lambda: done.append("b")}
    assert probe.settle(works) == ({"a": "could not create a primitive", "b": ""}, "")
    assert done == ["b"] and not tried


def test_where_all_is_well_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = pretend(monkeypatch, lambda setting: FINE)
    assert probe.settle({"a": illegal, "b": illegal}) == ({"a": "", "b": ""}, "")
    assert tried == [{}, {}]
    assert os.environ[probe.VARIABLE] == ""


def test_where_no_setting_helps_none_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = pretend(monkeypatch, lambda setting: DEAD)
    assert probe.settle({"a": illegal}) == ({"a": DIES}, "")
    assert tried == [{}, {probe.VARIABLE: probe.WITHOUT_AMX}]
    assert os.environ[probe.VARIABLE] == ""


def test_a_setting_that_helps_is_made_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, needs_setting)
    found, sentence = probe.settle({"a": illegal, "b": illegal})
    assert found == {"a": "", "b": ""}
    assert os.environ[probe.VARIABLE] == probe.WITHOUT_AMX
    how = f"{probe.VARIABLE}={probe.WITHOUT_AMX}"
    assert sentence == f"torch runs with {how}, which keeps it from AMX, since a fails otherwise: {DIES}"


@pytest.mark.parametrize("name", [probe.VARIABLE, probe.OLD_VARIABLE])
def test_who_set_it_before_is_not_contradicted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "AVX2")
    tried = pretend(monkeypatch, lambda setting: DEAD)
    found, sentence = probe.settle({"a": illegal})
    assert (found, sentence) == ({"a": DIES}, f"{name} is AVX2, as it was before the bench began")
    assert tried == [{}]


def test_what_torch_dies_of_is_not_timed(tiny: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda setting: DEAD)
    monkeypatch.setitem(precision.ACTIONS, "bfloat16", only_ours)
    bench = sections.Bench(tiny)
    sections.RUN["precision"](bench)
    (peer,) = contenders.named_peers(SMALL)
    timed = {name for group in bench.groups for name in group.timed}
    assert timed == {"manual float32", "manual bfloat16", f"{peer} float32", "sgemm 16"}
    assert bench.notes == [
        f"{peer} bfloat16, 2 x 3 is not measured: {DIES}",
        f"bfloat16 gemm 16 is not measured: {DIES}",
    ]


def only_ours(model: nn.Module, *ids: torch.Tensor) -> None:
    assert not isinstance(model, contenders.TorchLM), "what kills this process was run in it"
    contenders.train_step(model, *ids)


def test_the_log_says_what_was_set_and_why(
    tiny: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """And it is set before anything of torch's has run: before the first section."""
    pretend(monkeypatch, needs_setting)
    seen: list[str] = []
    monkeypatch.setitem(sections.RUN, "train", lambda bench: seen.append(os.environ[probe.VARIABLE]))
    monkeypatch.setitem(precision.ACTIONS, "bfloat16", contenders.train_step)
    words = ["--quick", "--only", "train", "precision", "--threads", "1", "--quiet", "--out", str(tmp_path)]
    assert main(["bench", *words]) == 0
    assert seen == [probe.WITHOUT_AMX]
    results: dict[str, Any] = json.loads((tmp_path / "bench.json").read_text())
    sentence = results["environment"]["torch_setting"]
    assert sentence.startswith(f"torch runs with {probe.VARIABLE}={probe.WITHOUT_AMX}") and sentence.endswith(DIES)
    assert results["notes"][-1] == sentence
    assert sentence in " ".join((tmp_path / "bench.txt").read_text().split())
    assert f"{contenders.named_peers(SMALL)[0]} bfloat16" in {one["name"] for one in results["groups"][0]["timed"]}


def test_sections_without_rounded_products_ask_nothing(tiny: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = pretend(monkeypatch, lambda setting: DEAD)
    assert main(["bench", "--quick", "--only", "machine", "--quiet"]) == 0
    assert main(["bench", "--quick", "--only", "precision", "--precision", "float32", "--quiet"]) == 0
    assert not tried
