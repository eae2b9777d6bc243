"""Finding a text and checking it: enwik8 by path, environment, cache or download; an excerpt; any other file."""

import contextlib
import dataclasses
import functools
import gzip
import hashlib
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import IO, Any

import numpy as np

from gfrnn.errors import DataError, UsageError
from gfrnn.storage.cache import cache_folder
from gfrnn.storage.files import sha256_of, temporary

ENWIK8_BYTES = 100_000_000
ENWIK8_SHA1 = "57b8363b814821dc9d47aa4d41f58733519076b2"
ENWIK8_SHA256 = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"
ENWIK8_URL = "https://mattmahoney.net/dc/enwik8.zip"
ENWIK8_ZIP_BYTES = 35_000_000  # about
EXCERPT = "excerpt"  # as a path: the text in the package, even where there is more
EXCERPT_NAME = "enwik8 excerpt"
EXCERPT_SHA256 = "837201cc53b8fc2bbfd8c5fbb7ae3459e188ce6f22522b68c206a9989cb4081a"
EXCERPT_NOTE = (
    "no enwik8 found: using the 2 MB excerpt in the package; `gfrnn data --download` fetches all of it, "
    "or name a copy with --data PATH or GFRNN_DATA=PATH"
)
NAMES = ("enwik8", "enwik8.gz", "enwik8.zip")
CHUNK = 1 << 20
# Text never compresses like this; a file that does would only fill the disk.
BOMB_RATIO, BOMB_BYTES = 100, 64 << 20
# How gzip and zipfile say it; the last two: a version or an encryption that damage made them see.
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, NotImplementedError, RuntimeError)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A text as bytes, never copied into memory as a whole when it comes from a file."""

    name: str
    bytes: np.ndarray  # uint8
    is_enwik8: bool = False  # the whole of it, checksum verified: only then do numbers compare with the paper's
    fallback: bool = False  # the excerpt, and only because nothing else was named or found

    def split(self, name: str) -> np.ndarray:
        """The first 90 % are "train", then 5 % "valid", then 5 % "test".

        >>> corpus = Corpus("x", np.arange(100, dtype=np.uint8))
        >>> corpus.split("valid")
        array([90, 91, 92, 93, 94], dtype=uint8)
        """
        part = len(self.bytes) // 20
        edges = {"train": (0, -2 * part), "valid": (-2 * part, -part), "test": (-part, None)}
        if name not in edges:
            raise UsageError(f"unknown split '{name}': it is one of train, valid, test")
        if part == 0:
            raise DataError(f"{self.name}: {len(self.bytes)} bytes are too few to split 90/5/5")
        return self.bytes[slice(*edges[name])]

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.bytes.data).hexdigest()


def load(path: str | Path | None = None) -> Corpus:
    """The text at `path`; without one $GFRNN_DATA, then enwik8 in the cache folder, then the excerpt."""
    named = path if path is not None else os.environ.get("GFRNN_DATA") or None
    if named is not None:
        if str(named) == EXCERPT and not Path(EXCERPT).exists():
            return excerpt()
        try:
            return read(Path(named))
        except DataError as error:
            raise error if path is not None else DataError(f"GFRNN_DATA: {error}") from error
    for name in NAMES:
        if (cache_folder() / name).exists():
            return read(cache_folder() / name)
    return dataclasses.replace(excerpt(), fallback=True)


def excerpt() -> Corpus:
    """About 2 MB of whole articles from the middle of enwik8, see data/NOTICE."""
    packed = resources.files("gfrnn").joinpath("data/enwik8-excerpt.xz").read_bytes()
    try:
        text = lzma.decompress(packed)
    except lzma.LZMAError as error:
        raise DataError(f"the excerpt in the package is damaged ({error}): install gfrnn again") from error
    found = hashlib.sha256(text).hexdigest()
    if found != EXCERPT_SHA256:
        raise DataError(f"the excerpt in the package is damaged: expected sha256 {EXCERPT_SHA256}, found {found}")
    return Corpus(EXCERPT_NAME, np.frombuffer(text, dtype=np.uint8))


def read(path: Path) -> Corpus:
    """A text file, raw or packed; one that calls itself enwik8 must be enwik8."""
    if path.is_dir():
        inside = [path / name for name in NAMES if (path / name).exists()]
        if not inside:
            raise DataError(f"{path} is a folder without enwik8, enwik8.gz or enwik8.zip")
        path = inside[0]
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if not path.is_file():
        raise DataError(f"{path} is not a plain file")
    raw = unpack(path) if path.suffix in (".gz", ".zip") else path
    if raw.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    text = np.memmap(raw, dtype=np.uint8, mode="r")
    claims = path.name in NAMES
    if not claims and len(text) != ENWIK8_BYTES:
        return Corpus(str(path), text)
    found = hashlib.sha1(text.data).hexdigest()
    if found == ENWIK8_SHA1:
        return Corpus("enwik8", text, is_enwik8=True)
    if claims:
        raise DataError(
            f"{path} is not enwik8: expected {ENWIK8_BYTES} bytes with sha1 {ENWIK8_SHA1}, "
            f"found {len(text)} bytes with sha1 {found} (rename it if it is another text)"
        )
    return Corpus(str(path), text)


def unpack(path: Path) -> Path:
    """The raw file of a .gz or .zip: unpacked once into the cache folder, named by the checksums of both."""
    folder, packed_sum = cache_folder() / "unpacked", sha256_of(path)[:32]
    for kept in sorted(folder.glob(f"{packed_sum}-*")):
        if kept.name == f"{packed_sum}-{sha256_of(kept)[:32]}":
            return kept  # what was damaged since is made again from the packed file, and replaced
    folder.mkdir(parents=True, exist_ok=True)
    unpacked_sum = hashlib.sha256()
    with temporary(folder / "text") as part:
        try:
            with path.open("rb") as packed, part.open("wb") as out:
                for chunk in unpacked_chunks(path, packed):
                    out.write(chunk)
                    unpacked_sum.update(chunk)
                out.flush()
                os.fsync(out.fileno())
        except DAMAGED as error:
            raise DataError(f"{path} is damaged or not a {path.suffix} file: {error}") from error
        target = folder / f"{packed_sum}-{unpacked_sum.hexdigest()[:32]}"
        part.replace(target)
    if sha256_of(target) != unpacked_sum.hexdigest():
        raise DataError(f"{target} is not what was written there, which {path} unpacks to: is the disk damaged?")
    return target


class ShortReads:
    """An open file for zipfile, which reads an archive's directory in one piece, however long that says it is."""

    LONGEST = 4 << 20

    def __init__(self, file: IO[bytes]) -> None:
        self.tell, self.seekable = file.tell, file.seekable
        self.file = file

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return self.file.seek(offset, whence)
        except (OSError, ValueError):  # what the directory says may lie before the file's beginning
            raise zipfile.BadZipFile("its list of files is damaged") from None

    def read(self, size: int = -1) -> bytes:
        content = self.file.read(min(size, self.LONGEST + 1) if size >= 0 else self.LONGEST + 1)
        if len(content) > self.LONGEST:
            raise zipfile.BadZipFile("its list of files is too long")
        return content


def unpacked_chunks(path: Path, packed: IO[bytes]) -> Iterator[bytes]:
    stream: Any
    if path.suffix == ".gz":
        stream, consumed = gzip.GzipFile(fileobj=packed), packed.tell
    else:
        archive = zipfile.ZipFile(ShortReads(packed))
        members = [member for member in archive.infolist() if not member.is_dir()]
        if len(members) != 1:
            raise DataError(f"{path} holds {len(members)} files: a text must be the only one")
        if members[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # The others are unpacked without a limit: a few bytes could fill the memory.
            raise DataError(f"{path} is packed in another way than zip's usual one (deflate): pack it again")
        stream, consumed = archive.open(members[0]), packed.tell
    total = 0
    while chunk := stream.read(CHUNK):
        total += len(chunk)
        if total > BOMB_BYTES and total > BOMB_RATIO * max(consumed(), 1):
            raise DataError(f"{path} unpacks to more than {BOMB_RATIO} times its size: that is no text")
        yield chunk


def nothing(fraction: float) -> None:
    """What happens between chunks by default."""


def download(url: str = ENWIK8_URL, tick: Callable[[float], None] = nothing) -> Path:
    """Fetch enwik8 into the cache folder: under a name of its own until the checksum is right, and checked again then.

    `tick` gets the fraction done. What is there already and whole is not fetched again.
    """
    import urllib.error
    import urllib.request

    target = cache_folder() / "enwik8.zip"
    if target.exists():
        with contextlib.suppress(DataError):
            check_archive(target)
            return target
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary(target) as part:
            with urllib.request.urlopen(url, timeout=30) as response, part.open("wb") as out:
                size = int(response.headers.get("Content-Length") or ENWIK8_ZIP_BYTES)
                while chunk := response.read(CHUNK):
                    out.write(chunk)
                    tick(out.tell() / size)
            check_archive(part)
            part.replace(target)
        check_archive(target)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise DataError(
            f"{url} cannot be reached ({getattr(error, 'reason', error)}): fetch it elsewhere and name the file with "
            f"--data PATH; unpacked it has {ENWIK8_BYTES} bytes and sha1 {ENWIK8_SHA1}"
        ) from error
    return target


def check_archive(path: Path) -> None:
    """Raise unless the zip file holds enwik8."""
    sha1, size = hashlib.sha1(), 0
    try:
        with path.open("rb") as packed:
            for chunk in unpacked_chunks(path, packed):
                sha1.update(chunk)
                size += len(chunk)
    except DAMAGED as error:
        raise DataError(f"the download is damaged ({error}): try again") from error
    if sha1.hexdigest() != ENWIK8_SHA1:
        raise DataError(
            f"the download is not enwik8: expected sha1 {ENWIK8_SHA1}, found {sha1.hexdigest()} ({size} bytes)"
        )
