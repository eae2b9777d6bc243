"""Disks that are full or read-only, folders that are shared, and clocks that go backwards."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import random
import re
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import ask, child, command, train_and_tell, whole_checkpoint
from runs import TINY, outcome, run_tiny, write_text
from test_signals import interrupt

from gfrnn.errors import Preempted
from gfrnn.storage import files, tensorfile
from gfrnn.training import loop, runlog

Survived = Callable[[int, int, str], None]
SHORT: dict[str, Any] = {"updates": 3, "validate_every": 2, "checkpoint_every": 1}


def words(folder: Path, name: str, **options: Any) -> list[str]:
    """The command that trains the tiny run."""
    options = {**TINY, **options, "data": write_text(folder), "out": folder / name}
    del options["epochs"]
    pairs = [(f"--{key.replace('_', '-')}", str(value)) for key, value in options.items()]
    return ["train", "modern-gated-lstm", "--quiet", *(word for pair in pairs for word in pair)]


def full_at(patch: pytest.MonkeyPatch, moment: int) -> list[str]:
    """From the n-th write on there is room for half of it; lists the files written before."""
    written: list[str] = []
    write_file, write_line = files.write_file, runlog.RunLog.write

    def no_space(path: Path) -> OSError:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def file(path: Path, content: bytes) -> None:
        if len(written) >= moment:
            path.write_bytes(content[: len(content) // 2])
            raise no_space(path)
        written.append(re.sub(r"(\.[0-9a-f]{16})?\.tmp$", "", path.name))
        write_file(path, content)

    def line(self: runlog.RunLog, kind: str, step: int, **values: Any) -> None:
        if len(written) >= moment:
            self.file.write(b'{"kind": "tra')
            raise no_space(self.path)
        written.append(self.path.name)
        write_line(self, kind, step, **values)

    for module in (files, tensorfile):
        patch.setattr(module, "write_file", file)
    patch.setattr(runlog.RunLog, "write", line)
    return written


@pytest.mark.parametrize("share", [0.0, pytest.param(1.0, marks=pytest.mark.soak)])
def test_the_disk_is_full_at_any_file(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: Survived
) -> None:
    with monkeypatch.context() as patch:
        written = full_at(patch, 1_000_000)
        run_tiny(tmp_path, "whole", **SHORT)
    whole = outcome(tmp_path / "whole")
    kinds = {name: written.index(name) for name in written}  # every file at least once
    chosen = {*kinds.values(), *random.Random(0).sample(range(len(written)), round(share * len(written)))}
    for moment in sorted(chosen):
        with monkeypatch.context() as patch:
            full_at(patch, moment)
            code, _, error = command(*words(tmp_path, str(moment), **SHORT))
        assert (code, error.count("\n")) == (3, 1)
        assert "no space left on the device" in error
        assert written[moment] in error
        whole_checkpoint(tmp_path / str(moment))
        assert command(*words(tmp_path, str(moment), **SHORT))[0] == 0
        assert outcome(tmp_path / str(moment)) == whole, written[moment]
    survived(len(chosen), len(chosen), f"full disks, at {len(kinds)} kinds of files, of {len(written)} writes")


def limited_in_size(most: int, *line: str) -> tuple[int, str, str]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    return command(*line)


def test_files_may_not_grow_beyond_a_limit_of_the_system(tmp_path: Path, survived: Survived) -> None:
    run_tiny(tmp_path, "whole", **SHORT)
    whole = outcome(tmp_path / "whole")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "whole/checkpoints/step-3").iterdir()}
    limits = sorted(size - 1 for size in sizes.values())
    for most in limits:
        code, _, error = ask(limited_in_size, most, *words(tmp_path, str(most), **SHORT))
        assert (code, error.count("\n")) == (3, 1), error
        assert "File too large" in error
        assert command(*words(tmp_path, str(most), **SHORT))[0] == 0
        assert outcome(tmp_path / str(most)) == whole
    survived(len(limits), len(limits), "files cut off by the system's own limit")


def test_a_record_is_written_whole_or_refused(tmp_path: Path) -> None:
    """A write may do less than it was asked for."""
    log = runlog.RunLog(tmp_path)

    class Narrow:
        room = 100

        def write(self, line: bytes) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, "full")
            part = line[: min(7, self.room)]
            self.room -= len(part)
            return real.write(part)

    real, log.file = log.file, Narrow()  # type: ignore[assignment]
    log.write("train", 1, nats=0.1)
    with pytest.raises(OSError, match="full"):
        log.write("train", 2, nats="x" * 200)
    real.close()
    assert runlog.read_metrics(tmp_path) == [{"kind": "train", "step": 1, "nats": 0.1}]


def without_privileges(*line: str) -> tuple[int, str, str]:
    """As root nothing is read-only; without the capabilities even root is refused."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
    return command(*line)


def test_read_only_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any], survived: Survived
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, "update", (signal.SIGTERM, signal.SIGTERM))
        with pytest.raises(Preempted):
            run_tiny(tmp_path)
    run, count = tmp_path / "run", 0
    for folder, name in ((tmp_path, "new"), (run, "run"), (run / "checkpoints", "run")):
        folder.chmod(0o555)
        code, _, error = ask(without_privileges, *words(tmp_path, name))
        folder.chmod(0o755)
        assert (code, error.count("\n")) == (3, 1), error
        assert "Permission denied" in error
        assert str(folder) in error
        count += 1
    assert command(*words(tmp_path, "run"))[0] == 0
    assert outcome(run) == undisturbed
    survived(count, 3, "read-only folders")


def test_two_processes_on_one_folder(tmp_path: Path, survived: Survived) -> None:
    options = {"updates": 40, "checkpoint_every": 5, "validate_every": 40}
    run_tiny(tmp_path, "whole", **options)
    intruders = 0
    with child(train_and_tell, tmp_path, "run", "modern-gated-lstm", {**options, "updates": 100_000}) as first:
        while not (tmp_path / "run.commits").exists():
            time.sleep(0.01)
        for _ in range(5):
            code, _, error = command(*words(tmp_path, "run", **options))
            assert (code, error.count("\n")) == (2, 1)
            assert f"in use by another process (pid {first.pid})" in error
            intruders += 1
        assert first.is_alive()
    # The lock dies with its process, kill -9 or not.
    whole_checkpoint(tmp_path / "run")
    assert command(*words(tmp_path, "run"), "--resume", "never")[0] == 2
    assert command(*words(tmp_path, "fresh", **options))[0] == 0
    assert outcome(tmp_path / "fresh") == outcome(tmp_path / "whole")
    survived(intruders, 5, "second processes kept out")


def test_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any], survived: Survived
) -> None:
    """By a year whenever it is asked: checkpoints still come in time, and nothing depends on the age of a file."""
    years = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 2e9 - 3e7 * next(years))
    monkeypatch.setattr(time, "time_ns", lambda: int(2e18) - int(3e16) * next(years))
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 1e-9)
    run_tiny(tmp_path, checkpoint_every=0, keep=100)
    run = tmp_path / "run"
    assert outcome(run)["tensors"] == undisturbed["tensors"]
    assert len(list((run / "checkpoints").iterdir())) == 13
    seconds = [record["seconds"] for record in runlog.read_metrics(run) if "seconds" in record]
    assert seconds == sorted(seconds) and seconds[0] >= 0
    for number, path in enumerate(sorted(run.rglob("*"))):
        os.utime(path, (1e9 - 1e6 * number, 1e9 - 1e6 * number))
    assert run_tiny(tmp_path, keep=100)["already_done"]
    assert whole_checkpoint(run) == 12
    survived(1, 1, "clocks set back")
