"""`gfrnn reproduce`: the table, the list, exit codes, and a real campaign that is killed, interrupted and continued."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import forked
import pytest
from campaigns import BUDGET, OPTIONS, PRETENDER, Trained, make_finished, names, tiny_plan
from runs import outcome, write_text
from test_cli import refused

from gfrnn.campaign import estimate
from gfrnn.campaign.plan import Budget, Planned
from gfrnn.campaign.run import Campaign
from gfrnn.campaign.runs import locked, look
from gfrnn.cli import main, reproduce
from gfrnn.training.run import train


def words(folder: Path, *more: str, chars: int = BUDGET, **options: Any) -> list[str]:
    data = ["--data", write_text(folder), "--budget", f"{chars} chars", "--out", str(folder / "c")]
    pairs = [("--option", f"{key}={value}") for key, value in {**OPTIONS, **options}.items()]
    return ["reproduce", *more, *data, *(word for pair in pairs for word in pair)]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["tabel2"], "'tabel2' is none of"),
        (["text", "--jobs", "100000"], "--jobs 100000 is more than the"),
        (["text", "--jobs", "0"], "--jobs must be at least 1"),
        (["text", "--threads", "0"], "--threads 0 are too few for --jobs 1"),
        (["text", "--threads", "100000"], "--threads 100000 are more than the"),
        (["text", "--budget", "much"], "a budget is epochs or characters"),
        (["text", "--budget", "-3"], "a budget is epochs or characters"),
        (["text", "--seeds", "1", "1"], "seed 1 is asked for twice"),
        (["text", "--seeds", "one"], "--seeds: expected a whole number, got 'one'"),
        (["text", "--settings", "best"], "'best' is none of modern, paper"),
        (["text", "--list", "--json"], "no --dry-run or --json with it"),
        (["text", "--option", "hidden_size"], "--option is KEY=VALUE"),
        (["text", "--option", "hiden=3"], "gfrnn train has no option 'hiden'"),
        (["text", "--option", "hidden-size=x"], "--option hidden_size: expected a whole number, got 'x'"),
        (["text", "--option", "seed=3"], "--option seed: --seeds says that"),
        (["text", "--option", "keep=1", "--option", "keep=2"], "--option keep is given twice"),
        (["text", "--option", "lstm:keep=1", "--option", "lstm:keep=2"], "--option lstm:keep is given twice"),
        (["text", "--option", "gru:keep=1"], "'gru' is neither a row nor a unit of this campaign"),
        (["text", "--option", "lstm:seed=3"], "--option seed: --seeds says that"),
    ],
)
def test_usage_errors_are_2(given: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, sentence = refused(capsys, "reproduce", *given)
    assert (code, why in sentence) == (2, True), sentence


def test_an_option_may_be_for_a_row_or_a_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--option", "lstm:learning_rate=0.5", "--option", "gated-lstm:learning-rate=0.25"]
    assert main(words(tmp_path, "ablation", "--list", *own, learning_rate=1)) == 0
    rates = {line.split()[2]: float(line.split("--learning-rate ")[1].split()[0]) for line in printed(capsys)}
    assert rates == {"modern-stacked-lstm": 0.5, "modern-feedback-lstm": 0.5, "modern-gated-lstm": 0.25}


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_folder_that_is_none_or_cannot_be_written_to_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    code, sentence = refused(capsys, "reproduce", "text", "--out", str(tmp_path / "file" / "c"))
    assert (code, "file is a file, not a folder" in sentence) == (2, True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    code, sentence = refused(capsys, "reproduce", "text", "--out", str(tmp_path / "c"))
    assert (code, f"{tmp_path} cannot be written to" in sentence) == (2, True)


def test_a_text_that_is_not_there_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, sentence = refused(
        capsys, "reproduce", "text", "--out", str(tmp_path / "c"), "--data", str(tmp_path / "none")
    )
    assert (code, "none does not exist" in sentence) == (3, True)
    assert not (tmp_path / "c").exists()


def test_table_1_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "table1", "--out", str(tmp_path / "c")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["gated-lstm", "lstm", "3x140", "3x140", "1,301,259"] for line in lines)
    assert main(["reproduce", "table1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["table1"]
    assert sum(row["paper"] is not None for row in rows) == 11
    assert not (tmp_path / "c").exists()


def test_the_table_shows_what_is_there_and_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "PROBE_SECONDS", 0.05)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plans = tiny_plan(tmp_path, ["ablation"])
    make_finished(tmp_path / "c", plans[0])
    (tmp_path / "c" / plans[1].name).mkdir()
    (tmp_path / "c" / plans[1].name / "config.yaml").write_text("{}")
    asked = words(tmp_path, "ablation", "--dry-run", "--seeds", "1", "2")
    assert main(asked) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["run", "state", "characters", "time", "left", "rate"]
    assert [line.split()[1] for line in out[1:7]] == ["finished", "foreign", *["missing"] * 4]
    assert "left out: " in out[7] and "config.yaml is no run's configuration" in out[7]
    assert "6 runs in" in out[8] and "4 missing, 1 finished, 1 foreign; about" in out[8]
    assert main([*asked, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    first, missing = report["runs"][0], report["runs"][3]
    assert (first["state"], first["characters"], first["seconds_left"]) == ("finished", 252, None)
    assert (missing["state"], missing["rate_source"]) == ("missing", "measured")
    todo = [run["seconds_left"] for run in report["runs"] if run["seconds_left"] is not None]
    assert report["seconds_left"] == pytest.approx(sum(todo))
    assert len(list((tmp_path / "c").iterdir())) == 2


def test_the_list_is_for_a_shell_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plans = tiny_plan(tmp_path, ["ablation"])
    make_finished(tmp_path / "c", plans[0])
    (tmp_path / "c" / plans[1].name).mkdir()
    (tmp_path / "c" / plans[1].name / "config.yaml").write_text("{}")
    capsys.readouterr()
    assert main(words(tmp_path, "ablation", "--list")) == 0
    out, error = capsys.readouterr()
    assert out == f"{plans[2].line(tmp_path / 'c')}\n"
    assert error.startswith("left out: ")


@pytest.fixture
def pretending(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes `gfrnn reproduce` start children that only pretend; the campaign's folder."""
    real = Campaign.start

    def start(self: Campaign, planned: Planned, phase: Any) -> None:
        self.command = [sys.executable, str(PRETENDER), str(trained[1])]
        real(self, planned, phase)

    monkeypatch.setattr(Campaign, "start", start)
    monkeypatch.setattr(estimate, "PROBE_SECONDS", 0.05)
    return tmp_path / "c"


def test_exit_codes_and_last_words(
    pretending: Path, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans, _ = trained
    fails = tmp_path / f"{plans[1].name}.fails"
    fails.write_text("gfrnn: no luck")
    assert main(words(tmp_path, "ablation", "--quiet")) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert "failed: exit code 3: no luck" in error.splitlines()[0]
    assert error.splitlines()[1:] == [f"gfrnn: 2 of 3 runs are finished, 1 failed ({plans[1].name})"]
    fails.write_text("gfrnn: no space left on the device")
    assert main(words(tmp_path, "ablation", "--quiet")) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no space left on the device; 1 of 3 runs are finished, the same command continues" in error
    fails.unlink()
    assert main(words(tmp_path, "ablation", "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert sorted(report["finished"]) == sorted(names(plans))
    assert main(words(tmp_path, "ablation")) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"3 of 3 runs are finished: {pretending}"
    (pretending / plans[0].name / "config.yaml").write_text("{}")
    assert main(words(tmp_path, "ablation", "--quiet")) == 1
    assert "1 left out (" in capsys.readouterr().err


def test_plain_lines_tell_of_every_job(
    pretending: Path,
    trained: Trained,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gfrnn.cli.progress.PLAIN_SECONDS", 0.02)
    name = trained[0][0].name
    waits = tmp_path / f"{name}.waits"
    waits.touch()
    (pretending / name).mkdir(parents=True)
    record = {"kind": "train", "step": 6, "nats": 1.3863, "characters": 126, "seconds": 2.0}
    (pretending / name / "metrics.jsonl").write_text(json.dumps(record) + "\n" + '{"torn')
    threading.Timer(3.0, waits.unlink).start()
    assert main(words(tmp_path, "ablation")) == 0
    out = capsys.readouterr().out
    assert f"{name}   50.0 %  2.000 BPC  63 chars/s" in out
    assert "campaign" in out and "0 of 3 finished" in out
    assert f"{name} is finished" in out


UPDATES = 300
SELDOM = {"validate_every": 150, "checkpoint_every": 0, "log_every": 10}  # so that there is something to lose


def start(folder: Path) -> forked.Popen:
    asked = words(folder, "text", "--quiet", chars=UPDATES * 21, **SELDOM)
    command = [sys.executable, "-m", "gfrnn", *asked]
    return forked.Popen(command, stderr=forked.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_for(process: forked.Popen, run: Path, lines: int) -> None:
    """Until the run's log has so many lines."""
    log = run / "metrics.jsonl"
    while not log.exists() or log.read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("interrupted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_killed_interrupted_and_continued_for_real(interrupted: bool, tmp_path: Path) -> None:
    """kill -9 of the campaign, then Ctrl-C, then to the end: the runs are those that nothing happened to.

    Ctrl-C of a campaign is seen in test_campaign_run.py every day.
    """
    plans = [dataclasses.replace(p, budget=Budget(chars=UPDATES * 21)) for p in tiny_plan(tmp_path, ["text"], **SELDOM)]
    first = tmp_path / "c" / plans[0].name
    process = start(tmp_path)
    wait_for(process, first, 5)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while locked(first):  # the child was told by the system, saves and leaves
        assert time.monotonic() < deadline
        time.sleep(0.05)
    saved = int((first / "LATEST").read_text().split("-")[1])
    assert saved > 0
    assert f"saved at update {saved}" in (first / "stderr.txt").read_text()
    assert look(tmp_path / "c", plans[0]).state == "stopped"

    if interrupted:
        process = start(tmp_path)
        wait_for(process, first, (first / "metrics.jsonl").read_bytes().count(b"\n") + 5)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
        assert process.returncode == 130
        assert error == "gfrnn: 1 run was stopped and saved; 0 of 2 are finished, the same command continues\n"
        assert int((first / "LATEST").read_text().split("-")[1]) > saved
        assert not locked(first)

    process = start(tmp_path)
    _, error = process.communicate()
    assert (process.returncode, error) == (0, "")
    assert [look(tmp_path / "c", planned).state for planned in plans] == ["finished", "finished"]
    train(plans[0].config, tmp_path / "undisturbed")
    assert outcome(first) == outcome(tmp_path / "undisturbed")


def test_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [reproduce.shared_out(jobs, None) for jobs in (1, 2, 3, 8)] == [8, 4, 2, 1]
    assert reproduce.shared_out(2, 6) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [reproduce.shared_out(jobs, None) for jobs in (1, 2, 4)] == [3, 3, 2]
    assert reproduce.shared_out(2, 8) == 4
