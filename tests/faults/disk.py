"""A disk that fails: every write, fsync, rename and removal of ours is a moment at which everything may stop."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gfrnn.storage import files, tensorfile
from gfrnn.training import runlog


class Crash(BaseException):
    """As sudden as kill -9: nothing catches it."""


class Disk:
    """While `patch` lasts, calls `at(moment's number, its name)` before and after whatever touches the disk."""

    def __init__(self, patch: pytest.MonkeyPatch, at: Callable[[int, str], None]) -> None:
        self.at, self.moments = at, 0
        write_file = self.torn(files.write_file)
        for module in (files, tensorfile):
            patch.setattr(module, "write_file", write_file)
        patch.setattr(runlog.RunLog, "write", self.around(runlog.RunLog.write, "record"))
        patch.setattr(os, "fsync", self.around(self.fsync, "fsync"))
        for name in ("rename", "replace"):
            patch.setattr(os, name, self.around(getattr(os, name), name))
        patch.setattr(shutil, "rmtree", self.around(self.half_then_all(shutil.rmtree), "rmtree"))

    def moment(self, name: str) -> None:
        self.moments += 1
        self.at(self.moments - 1, name)

    def fsync(self, handle: int) -> None:
        """Nothing: what the kernel has survives all but a power cut, and that is `PowerCut`'s business."""

    def around(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def fake(*args: Any, **kwargs: Any) -> Any:
            self.moment(f"before {name}")
            result = real(*args, **kwargs)
            self.moment(f"after {name}")
            return result

        return fake

    def torn(self, real: Callable[[Path, bytes], None]) -> Callable[[Path, bytes], None]:
        def fake(path: Path, content: bytes) -> None:
            self.moment("before write")
            path.write_bytes(content[: len(content) // 2])
            self.moment("half-way through write")
            real(path, content)
            self.moment("after write")

        return fake

    def half_then_all(self, real: Callable[..., None]) -> Callable[..., None]:
        def fake(folder: Path, **kwargs: Any) -> None:
            inside = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            for path in inside[: len(inside) // 2]:
                path.unlink()
            if inside:
                self.moment("half-way through rmtree")
            real(folder, **kwargs)

        return fake


def crash_at(patch: pytest.MonkeyPatch, moment: int) -> list[str]:
    """Crash at the n-th moment; lists the moments that passed."""
    passed: list[str] = []

    def at(number: int, name: str) -> None:
        if number == moment:
            raise Crash
        passed.append(name)

    Disk(patch, at)
    return passed


class PowerCut(Disk):
    """Also knows what would be left if the power went: only what fsync has been called for, contents and names."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, at: Callable[[int, str], None]) -> None:
        self.root = root
        self.contents: dict[int, bytes] = {}
        self.names: dict[int, dict[str, tuple[int, bool]]] = {}  # a folder's entries: number, whether a folder
        self.held: list[int] = []
        super().__init__(patch, at)

    def fsync(self, handle: int) -> None:
        number = os.fstat(handle).st_ino
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        self.held.append(os.dup(handle))  # so that no other file gets this number
        if path.is_dir():
            self.names[number] = {entry.name: (entry.stat().st_ino, entry.is_dir()) for entry in path.iterdir()}
        else:
            self.contents[number] = path.read_bytes()

    def left(self, target: Path) -> None:
        """Put what would be left into the folder `target`."""
        self._put_folder(self.root.stat().st_ino, target)

    def _put_folder(self, number: int, target: Path) -> None:
        target.mkdir()
        for name, (inner, is_folder) in self.names.get(number, {}).items():
            if is_folder:
                self._put_folder(inner, target / name)
            else:
                (target / name).write_bytes(self.contents.get(inner, b""))

    def close(self) -> None:
        for handle in self.held:
            os.close(handle)
