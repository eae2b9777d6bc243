"""Containers that share a cache folder: two of them fetch and unpack the same text at once, each as process 1."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from gfrnn.errors import DataError
from gfrnn.storage.files import LEFTOVER_SECONDS
from gfrnn.tasks.text import corpus

TEXT = bytes(range(32, 127)) * 50_000  # several chunks


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def meanwhile(monkeypatch: pytest.MonkeyPatch, name: str, other: Callable[[], Any]) -> list[Any]:
    """When corpus.`name` has yielded its first chunk, `other` happens from beginning to end; its results."""
    real, results = getattr(corpus, name), []

    def interrupted(*args: Any) -> Iterator[bytes]:
        chunks = real(*args)
        yield next(chunks)
        if not results:
            results.append(None)
            results[0] = other()
        yield from chunks

    monkeypatch.setattr(corpus, name, interrupted)
    return results


def test_two_unpack_the_same_text(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(TEXT, 1))
    theirs = meanwhile(monkeypatch, "unpacked_chunks", lambda: corpus.read(packed))
    ours = corpus.read(packed)
    assert ours.bytes.tobytes() == theirs[0].bytes.tobytes() == TEXT
    assert len(os.listdir(cache / "unpacked")) == 1


def test_a_text_is_right_while_another_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(TEXT, 1))

    def read_and_look() -> bool:
        return corpus.read(packed).bytes.tobytes() == TEXT

    seen = meanwhile(monkeypatch, "unpacked_chunks", read_and_look)
    corpus.read(packed)
    assert seen == [True]


def test_two_download_at_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "ENWIK8_SHA1", hashlib.sha1(TEXT).hexdigest())
    with zipfile.ZipFile(tmp_path / "this.zip", "w") as archive:  # not compressed: several chunks
        archive.writestr("enwik8", TEXT)
    url, done = (tmp_path / "this.zip").as_uri(), []

    def tick(fraction: float) -> None:
        if not done:
            done.append(None)
            done[0] = corpus.download(url)

    assert corpus.download(url, tick) == done[0] == cache / "enwik8.zip"
    assert corpus.load().bytes.tobytes() == TEXT
    assert sorted(os.listdir(cache)) == ["enwik8.zip", "unpacked"]


def test_what_does_not_arrive_on_the_disk_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(TEXT, 1))
    real = Path.open

    class Forgetful:
        def __init__(self, file: IO[bytes]) -> None:
            self.file, self.flush, self.fileno = file, file.flush, file.fileno

        def __enter__(self) -> Forgetful:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def write(self, content: bytes) -> None:
            self.file.write(bytes(len(content)))

    def damaging(path: Path, mode: str = "r", *args: Any) -> Any:
        file = real(path, mode, *args)
        return Forgetful(file) if mode == "wb" else file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", damaging)
        with pytest.raises(DataError, match="is not what was written there"):
            corpus.read(packed)
    assert corpus.read(packed).bytes.tobytes() == TEXT


def test_what_a_killed_process_left_goes_after_an_hour(tmp_path: Path, cache: Path) -> None:
    folder = cache / "unpacked"
    folder.mkdir(parents=True)
    for name in ("text.0123456789abcdef.tmp", "text.fedcba9876543210.tmp"):
        (folder / name).write_bytes(b"half")
    old = (folder / name).stat().st_mtime - LEFTOVER_SECONDS - 1
    os.utime(folder / name, (old, old))
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(TEXT, 1))
    corpus.read(packed)
    assert sorted(path.suffix for path in folder.iterdir()) == ["", ".tmp"]
