"""Replacing a file: by several processes at once, on a failure, and after a crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gfrnn.storage.files import LEFTOVER_SECONDS, replace_file

WRITER = """
import os, sys
from pathlib import Path
from gfrnn.storage import files
os.getpid = lambda: 1
real = files.write_file
def slowly(path, content):
    real(path, content)
    print("written", flush=True)
    sys.stdin.readline()
files.write_file = slowly
files.replace_file(Path(sys.argv[1]), sys.argv[2].encode())
"""


def test_two_processes_may_write_the_same_file(tmp_path: Path) -> None:
    """Both have written their part before either renames it; both are process 1, as the first of a container is."""
    path = tmp_path / "report.json"
    command = [sys.executable, "-c", WRITER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "first"], **pipes) as one, subprocess.Popen([*command, "second"], **pipes) as two:
        for process in (one, two):
            assert process.stdout.readline() == "written\n"
        for process, text in ((one, "first"), (two, "second")):
            process.communicate("\n")
            assert process.returncode == 0
            assert path.read_text() == text
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "LATEST"
    replace_file(path, b"old")

    def refuse(*paths: Path) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["LATEST"]


def test_what_a_killed_process_left_is_swept_later(tmp_path: Path) -> None:
    path = tmp_path / "[1] LATEST"
    old, young = "0123456789abcdef", "fedcba9876543210"
    names = [f"[1] LATEST.{old}.tmp", f"[1] LATEST.{young}.tmp", "[1] LATEST.notes.tmp", f"other.{old}.tmp"]
    for name in names:
        (tmp_path / name).write_text("")
        if name != names[1]:
            os.utime(tmp_path / name, (0, (tmp_path / name).stat().st_mtime - LEFTOVER_SECONDS - 1))
    replace_file(path, b"new")
    assert sorted(os.listdir(tmp_path)) == sorted(["[1] LATEST", *names[1:]])
