"""Texts that are small on the disk and endless to read."""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path


def gzip_bomb(folder: Path) -> Path:
    """10 GB in 10 MB."""
    (folder / "bomb.gz").write_bytes(gzip.compress(bytes(64 << 20)) * 160)
    return folder / "bomb.gz"


def zip_bomb(folder: Path, kind: int = zipfile.ZIP_DEFLATED) -> Path:
    path = folder / f"bomb{kind}.zip"
    with zipfile.ZipFile(path, "w", kind) as archive, archive.open("text", "w", force_zip64=True) as member:
        for _ in range(2):
            member.write(bytes(64 << 20))
    return path


def lying_zip(folder: Path) -> Path:
    """Says that it unpacks to 10 bytes."""
    with zipfile.ZipFile(folder / "lie.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text", bytes(200 << 20))
        archive.infolist()[0].file_size = 10
    return folder / "lie.zip"


def crowded_zip(folder: Path) -> Path:
    """A directory of a million files."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    directory = entry * 1_000_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
    (folder / "crowded.zip").write_bytes(directory + end)
    return folder / "crowded.zip"


def pipe_called(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return make
