"""Training what a campaign lacks, by children that only pretend: shared out, failing, stopped, and started again."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaigns import PRETENDER, Trained, names, notes

from gfrnn.campaign import run as running
from gfrnn.campaign.plan import Planned
from gfrnn.campaign.run import Campaign, Watch
from gfrnn.campaign.runs import locked
from gfrnn.errors import Interrupted, Preempted
from gfrnn.training.checkpoint import lock


class Heard(Watch):
    """What was told; `act` is called at every look."""

    def __init__(self, act: Callable[[Campaign], None] = lambda campaign: None) -> None:
        self.act = act
        self.told: list[str] = []
        self.warned: list[str] = []
        self.most = 0

    def show(self, campaign: Campaign) -> None:
        self.most = max(self.most, len(campaign.active))
        self.act(campaign)

    def tell(self, sentence: str) -> None:
        self.told.append(sentence)

    def warn(self, sentence: str) -> None:
        self.warned.append(sentence)


@pytest.fixture
def campaign(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes a campaign in the folder `c` whose children only pretend."""
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.05)

    def make(watch: Heard | None = None, **more: Any) -> Campaign:
        command = [sys.executable, str(PRETENDER), str(trained[1])]
        return Campaign(tmp_path / "c", trained[0], command, watch=watch or Heard(), **more)

    return make


def test_what_is_missing_is_trained_and_evaluated_once(
    trained: Trained, campaign: Callable[..., Campaign], tmp_path: Path
) -> None:
    plans, _ = trained
    watch = Heard()
    first = campaign(watch)
    first.run()
    assert first.finished == names(plans)
    assert watch.told == [f"{name} is finished" for name in names(plans)]
    assert (watch.most, watch.warned, first.failed, first.left) == (1, [], {}, [])
    assert notes(tmp_path, "train") == notes(tmp_path, "eval") == names(plans)
    again = campaign()
    again.run()
    assert again.finished == names(plans)
    assert len(notes(tmp_path, "train")) == len(notes(tmp_path, "eval")) == 3
    (tmp_path / "c" / plans[1].name / "blocks-test.safetensors").unlink()
    campaign().run()
    assert (len(notes(tmp_path, "train")), notes(tmp_path, "eval")[3:]) == (3, [plans[1].name])


def test_jobs_share_the_threads_and_work_at_the_same_time(
    trained: Trained, campaign: Callable[..., Campaign], tmp_path: Path
) -> None:
    waits = [tmp_path / f"{planned.name}.waits" for planned in trained[0][:2]]
    for path in waits:
        path.touch()

    def let_go(campaign: Campaign) -> None:
        if len(notes(tmp_path, "train")) == 2:
            for path in waits:
                path.unlink(missing_ok=True)

    watch = Heard(let_go)
    one = campaign(watch, jobs=2, threads=3)
    one.run()
    assert watch.most == 2
    assert sorted(one.finished) == sorted(names(trained[0]))
    assert {line.split()[1] for line in (tmp_path / "train.txt").read_text().splitlines()} == {"3"}


def test_a_failed_run_is_reported_and_does_not_stop_the_rest(
    trained: Trained, campaign: Callable[..., Campaign], tmp_path: Path
) -> None:
    plans, _ = trained
    fails = tmp_path / f"{plans[0].name}.fails"
    fails.write_text("gfrnn: the text is no text")
    watch = Heard()
    one = campaign(watch)
    one.run()
    assert one.finished == names(plans[1:])
    assert one.failed == {plans[0].name: "exit code 3: the text is no text"}
    log = tmp_path / "c" / plans[0].name / "stderr.txt"
    assert log.read_text() == "a warning before\ngfrnn: the text is no text\n"
    assert watch.warned == [f"{plans[0].name} failed: exit code 3: the text is no text; {log} has the rest"]
    fails.unlink()
    again = campaign()
    again.run()
    assert (sorted(again.finished), again.failed) == (sorted(names(plans)), {})
    assert notes(tmp_path, "train") == [*names(plans), plans[0].name]


def test_a_killed_child_is_a_failed_run(trained: Trained, campaign: Callable[..., Campaign], tmp_path: Path) -> None:
    name = trained[0][0].name
    (tmp_path / f"{name}.waits").touch()

    def kill(campaign: Campaign) -> None:
        if notes(tmp_path, "train") == [name] and campaign.active[0].planned.name == name:
            campaign.active[0].process.kill()

    one = campaign(Heard(kill))
    one.run()
    assert one.failed == {name: "killed by SIGKILL"}
    assert one.finished == names(trained[0][1:])


def test_a_full_disk_ends_the_campaign_with_one_sentence(
    trained: Trained, campaign: Callable[..., Campaign], tmp_path: Path
) -> None:
    (tmp_path / f"{trained[0][1].name}.fails").write_text("gfrnn: no space left on the device (x); and so on")
    watch = Heard()
    one = campaign(watch)
    one.run()
    assert one.full == "exit code 3: no space left on the device (x); and so on"
    assert (one.finished, one.failed, one.left, watch.warned) == ([trained[0][0].name], {}, [], [])
    assert notes(tmp_path, "train") == names(trained[0][:2])


def test_a_disk_so_full_that_a_child_cannot_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "is_full", lambda folder: True)
    assert running.obituary(3, "", tmp_path) == f"exit code 3: no space left on the device ({tmp_path})"


def test_a_full_disk_before_a_child_starts(
    campaign: Callable[..., Campaign], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_room(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(running, "make_folder", no_room)
    one = campaign()
    one.run()
    assert one.full.startswith("no space left on the device (")
    assert notes(tmp_path, "train") == []


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, Interrupted), (signal.SIGTERM, Preempted), (signal.SIGUSR1, Preempted)]
)
def test_a_signal_stops_all_children_after_they_have_saved(
    number: int,
    raised: type[Exception],
    trained: Trained,
    campaign: Callable[..., Campaign],
    tmp_path: Path,
) -> None:
    plans, _ = trained
    for planned in plans[1:]:
        (tmp_path / f"{planned.name}.waits").touch()

    def interrupt(campaign: Campaign) -> None:
        if len(notes(tmp_path, "train")) == 3:
            os.kill(os.getpid(), number)

    one = campaign(Heard(interrupt), jobs=2)
    with pytest.raises(raised, match="2 runs were stopped and saved; 1 of 3 are finished, the same command continues"):
        one.run()
    assert one.active == []
    for planned in plans[1:]:
        assert (tmp_path / f"{planned.name}.saved").exists()
        assert not locked(tmp_path / "c" / planned.name)
        (tmp_path / f"{planned.name}.waits").unlink()
    again = campaign()
    again.run()
    assert again.finished == names(plans)
    assert notes(tmp_path, "train").count(plans[0].name) == 1


def test_two_campaigns_on_one_folder_share_the_work(
    trained: Trained, campaign: Callable[..., Campaign], tmp_path: Path
) -> None:
    """The second finds the first run taken, does the others, and leaves the first to its owner."""
    plans, _ = trained
    waits = tmp_path / f"{plans[0].name}.waits"
    waits.touch()
    second = campaign()

    def start_second(first: Campaign) -> None:
        if waits.exists() and notes(tmp_path, "train") == [plans[0].name]:
            second.run()
            waits.unlink()

    first = campaign(Heard(start_second))
    first.run()
    assert (second.finished, second.left, second.failed) == (names(plans[1:]), [plans[0].name], {})
    assert (sorted(first.finished), first.left) == (sorted(names(plans)), [])
    assert sorted(notes(tmp_path, "train")) == sorted(notes(tmp_path, "eval")) == sorted(names(plans))


def test_who_evaluates_a_run_holds_it_too(trained: Trained, campaign: Callable[..., Campaign], tmp_path: Path) -> None:
    plans, _ = trained
    rests = tmp_path / f"{plans[0].name}.rests"
    rests.touch()
    second = campaign()

    def start_second(first: Campaign) -> None:
        if rests.exists() and notes(tmp_path, "eval") == [plans[0].name]:
            second.run()
            rests.unlink()

    campaign(Heard(start_second)).run()
    assert (second.finished, second.left) == (names(plans[1:]), [plans[0].name])
    assert notes(tmp_path, "eval").count(plans[0].name) == 1


def test_two_campaigns_that_start_the_same_run_at_the_same_time(
    trained: Trained,
    campaign: Callable[..., Campaign],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both saw that it was free; the lock decides, and who lost goes on with the rest."""
    plans, _ = trained
    waits = tmp_path / f"{plans[0].name}.waits"
    waits.touch()
    real, blind = running.look, [True]

    def late(folder: Path, planned: Planned, text_sha256: str | None) -> Any:
        state = real(folder, planned, text_sha256)
        if state.state == "running" and blind:
            blind.clear()
            return type(state)(state.folder, "stopped")
        return state

    monkeypatch.setattr(running, "look", late)
    second = campaign()

    def start_second(first: Campaign) -> None:
        if waits.exists() and notes(tmp_path, "train") == [plans[0].name]:
            second.run()
            waits.unlink()

    first = campaign(Heard(start_second))
    first.run()
    assert blind == []
    assert (second.finished, second.left, second.failed) == (names(plans[1:]), [plans[0].name], {})
    assert (sorted(first.finished), first.failed) == (sorted(names(plans)), {})
    assert notes(tmp_path, "train").count(plans[0].name) == 1
    assert "in use by another process" in (tmp_path / "c" / plans[0].name / "stderr.txt").read_text()


def test_a_run_that_another_process_lets_go_of_is_taken_up(
    trained: Trained, campaign: Callable[..., Campaign], tmp_path: Path
) -> None:
    name = trained[0][0].name
    held = [lock(tmp_path / "c" / name)]

    def let_go(campaign: Campaign) -> None:
        if len(campaign.finished) == 1 and held:
            held.pop().close()

    one = campaign(Heard(let_go))
    one.run()
    assert one.finished == [*names(trained[0][1:]), name]


def test_foreign_runs_are_left_out(trained: Trained, campaign: Callable[..., Campaign], tmp_path: Path) -> None:
    foreign = tmp_path / "c" / trained[0][0].name
    foreign.mkdir(parents=True)
    (foreign / "letter.txt").write_text("mine")
    one = campaign()
    one.run()
    assert one.finished == names(trained[0][1:])
    assert list(one.foreign) == [foreign.name]
    assert [path.name for path in foreign.iterdir()] == ["letter.txt"]
