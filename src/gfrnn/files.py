"""Files that survive a crash, and their checksums. Every write that must last goes through here."""

import contextlib
import glob
import hashlib
import os
import stat
import sys
import time
from pathlib import Path

from gfrnn.errors import DataError

CHUNK = 1 << 20
LEFTOVER_SECONDS = 3600.0


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_named(name: str, limit: int) -> bytes:
    """The first `limit` bytes of the file that a user named, or of standard input if that is `-`."""
    try:
        if name != "-":
            with Path(name).open("rb") as file:
                return file.read(limit)
        if sys.stdin is None:
            raise DataError("standard input is closed: name a file")
        return sys.stdin.buffer.read(limit)
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}") from None


def write_file(path: Path, content: bytes) -> None:
    """A new file whose bytes are on the disk when this returns."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make the names in a folder (creations, renames) last."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """A folder, with its parents, whose name lasts."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def rename(source: Path, target: Path) -> None:
    """Rename within a folder, so that it lasts."""
    os.rename(source, target)
    sync_folder(target.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Old content or new content, never a mixture, whenever the machine stops; of two writers the last one wins."""
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write_file(part, content)
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    sweep_parts(path)


def sweep_parts(path: Path) -> None:
    """Remove what processes that were killed in `replace_file` left behind; what is young may be somebody's at work."""
    for part in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError):
            if part.name[len(path.name) + 1 : -4].isdigit() and time.time() - part.stat().st_mtime > LEFTOVER_SECONDS:
                part.unlink()


def read_small(path: Path, limit: int = 16 << 20) -> bytes:
    """A whole file that has no business being large."""
    if path.is_symlink():
        raise DataError(f"{path} is a symbolic link: checkpoints hold plain files only")
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):  # a pipe would keep us waiting, a device never end
            raise DataError(f"{path} is not a plain file")
        size = about.st_size
        if size > limit:
            raise DataError(f"{path} has {size} bytes, more than the {limit} it can have")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
