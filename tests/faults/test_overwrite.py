"""`save_pretrained` over a model: stopped at any moment, the folder holds the old one or the new one, whole."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from disk import Crash, Disk, PowerCut
from harness import child
from runs import tiny

from gfrnn.errors import DataError, UsageError
from gfrnn.models import CharLM
from gfrnn.models.pretrained import find, read_config
from gfrnn.storage.files import LEFTOVER_SECONDS
from gfrnn.storage.tensorfile import move_out
from gfrnn.training.run import train

Survived = Callable[[int, int, str], None]
FILES = ["README.md", "config.json", "manifest.json", "model.safetensors"]


def model(number: int) -> CharLM:
    """A model whose configuration and weights all say `number`."""
    made = CharLM(hidden_size=number, num_layers=1, vocabulary=bytes(range(8)))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(float(number))
    return made


def number_of(folder: Path) -> int:
    """Which model is there; it must be one of `model`, whole."""
    found = CharLM.from_pretrained(folder)
    expected = model(found.layer.hidden_size).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.state_dict().items())
    return found.layer.hidden_size


def stop_at(patch: pytest.MonkeyPatch, moment: int, action: Callable[[], Any]) -> tuple[bool, list[str]]:
    """Whether `action` was cut short at the n-th moment of its file operations, and the moments that passed."""
    passed: list[str] = []

    def at(number: int, name: str) -> None:
        if number == moment:
            raise Crash
        passed.append(name)

    with patch.context() as inner:
        disk = Disk(inner, at)
        for name in ("mkdir", "rmdir"):
            inner.setattr(os, name, disk.around(getattr(os, name), name))
        try:
            action()
        except Crash:
            return True, passed
    return False, passed


def committed(tmp_path: Path, patch: pytest.MonkeyPatch) -> Path:
    """A folder whose model was committed and has not taken its place yet."""
    moment = 0
    while not (tmp_path / f"{moment}/.new").exists():
        moment += 1
        stop_at(patch, moment, functools.partial(model(1).save_pretrained, tmp_path / str(moment)))
    return tmp_path / str(moment)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_crash_at_any_moment_leaves_the_old_model_or_the_new(
    fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: Survived
) -> None:
    moment, crashed, seen = 0, True, []
    while crashed:
        folder = tmp_path / str(moment)
        folder.mkdir()
        (folder / "README.md").write_text("mine")
        if not fresh:
            model(1).save_pretrained(folder)
        crashed, passed = stop_at(monkeypatch, moment, functools.partial(model(2).save_pretrained, folder))
        committed = "before rename" in passed
        if committed or not fresh:
            seen.append(number_of(folder))
            assert seen[-1] == (2 if committed else 1), passed
        model(3).save_pretrained(folder)
        assert number_of(folder) == 3
        assert (folder / "README.md").read_text() == "mine"
        assert [name for name in sorted(os.listdir(folder)) if not name.endswith(".tmp")] == FILES
        moment += crashed
    assert {"before mkdir", "half-way through write", "before fsync", "before rmdir"} <= {*passed}
    assert (passed.count("before rename"), passed.count("before replace")) == (1, 3)
    assert fresh or set(seen) == {1, 2}
    survived(moment, moment, f"crashes of save_pretrained {'into a new folder' if fresh else 'over a model'}")


def test_a_power_cut_at_any_moment_leaves_the_old_model_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: Survived
) -> None:
    root, cuts = tmp_path / "disk", []

    def cut(number: int, name: str) -> None:
        left = tmp_path / f"left{number}"
        power.left(left)
        cuts.append((left / "model", number >= started, name))

    root.mkdir()
    with monkeypatch.context() as patch:
        started = 1 << 30
        power = PowerCut(root, patch, cut)
        model(1).save_pretrained(root / "model")
        started = power.moments
        model(2).save_pretrained(root / "model")
        cut(power.moments, "the end")
        power.close()
    found = [number_of(folder) for folder, there, _ in cuts if there]
    assert found == sorted(found) and found[0] == 1 and found[-1] == 2
    survived(len(found), len(found), "power cuts in save_pretrained over a model")


def test_a_folder_that_was_never_whole_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stop_at(monkeypatch, 5, lambda: model(1).save_pretrained(tmp_path / "m"))[0]
    with pytest.raises(DataError, match="a folder without a model"):
        CharLM.from_pretrained(tmp_path / "m")


def test_what_a_kill_left_goes_after_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stop_at(monkeypatch, 5, lambda: model(1).save_pretrained(tmp_path))[0]
    (left,) = tmp_path.iterdir()
    model(2).save_pretrained(tmp_path)
    assert left.exists()
    old = left.stat().st_mtime - LEFTOVER_SECONDS - 1
    os.utime(left, (old, old))
    model(3).save_pretrained(tmp_path)
    assert not left.exists()


def save_many(folder: Path, numbers: list[int], times: int) -> None:
    for _ in range(times):
        for number in numbers:
            model(number).save_pretrained(folder)


def test_two_write_and_one_reads(tmp_path: Path) -> None:
    """Whoever reads meanwhile gets a whole model every time."""
    model(1).save_pretrained(tmp_path)
    seen = set()
    with child(save_many, tmp_path, [2, 3], 15) as one, child(save_many, tmp_path, [4, 5], 15) as two:
        while one.is_alive() or two.is_alive():
            seen.add(number_of(tmp_path))
        assert (one.exitcode, two.exitcode) == (0, 0)
    assert len(seen) > 2
    assert sorted(os.listdir(tmp_path)) == FILES[1:]


def test_a_model_that_takes_its_place_while_somebody_looks_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, look = committed(tmp_path, monkeypatch), Path.exists

    def move_after_a_look(path: Path) -> bool:
        there = look(path)
        if there and path.parent.name == ".new":
            monkeypatch.undo()
            move_out(folder)
        return there

    for read in (number_of, lambda folder: read_config(find(folder))["hidden_size"]):
        monkeypatch.setattr(Path, "exists", move_after_a_look)
        assert read(folder) == 1
        assert not (folder / ".new").exists()
        (folder / ".new").mkdir()
        for name in FILES[1:]:
            os.replace(folder / name, folder / ".new" / name)


def test_a_link_in_the_place_of_a_commit_is_refused(tmp_path: Path) -> None:
    model(1).save_pretrained(tmp_path / "one")
    model(2).save_pretrained(tmp_path / "two")
    (tmp_path / "one/.new").symlink_to(tmp_path / "two")
    with pytest.raises(DataError, match=r"\.new is a symbolic link"):
        CharLM.from_pretrained(tmp_path / "one")


def test_a_run_does_not_start_in_a_folder_with_a_committed_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="holds a saved model"):
        train(tiny(tmp_path), committed(tmp_path, monkeypatch))
