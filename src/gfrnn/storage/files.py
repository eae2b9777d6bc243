"""Files that survive a crash, and their checksums. Every write that must last goes through here."""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gfrnn.errors import DataError

CHUNK = 1 << 20
LEFTOVER_SECONDS = 3600.0
RANDOM_BYTES = 8


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


def make_output(path: Path) -> None:
    """The folder that somebody asked for, before anything long begins."""
    try:
        make_folder(path)
    except OSError as error:
        raise DataError(f"{path} cannot be made: {error.strerror}") from error


def rename(source: Path, target: Path) -> None:
    """Rename within a folder, so that it lasts."""
    os.rename(source, target)
    sync_folder(target.parent)


@contextlib.contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """A name beside `path` for what will be renamed to it; what is made of it does not outlive a failure.

    The name is random: in containers that share a folder every process may have the number 1.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(RANDOM_BYTES)}.tmp")
    try:
        yield part
    except (Exception, KeyboardInterrupt):
        remove(part)
        raise
    sweep_parts(path)


def sweep_parts(path: Path, age: float = LEFTOVER_SECONDS) -> None:
    """Remove what processes that were killed left behind in `temporary`; what is young may be somebody's at work."""
    ours = re.compile(rf"{re.escape(path.name)}\.[0-9a-f]{{{2 * RANDOM_BYTES}}}\.tmp")
    for part in path.parent.iterdir():
        with contextlib.suppress(OSError):
            if ours.fullmatch(part.name) and time.time() - part.stat().st_mtime > age:
                remove(part)


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it; it may be gone already."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Old content or new content, never a mixture, whenever the machine stops; of two writers the last one wins."""
    with temporary(path) as part:
        write_file(part, content)
        os.replace(part, path)
        sync_folder(path.parent)


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
