"""The text: where it is found, what is refused, and how minibatches are cut from it."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
from runs import tiny

from gfrnn.errors import DataError, UsageError
from gfrnn.models.vocabulary import Vocabulary
from gfrnn.tasks.text import corpus

TEXT = b"The quick brown fox jumps over the lazy dog.\n" * 40


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GFRNN_DATA", raising=False)
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_vocabulary_has_the_205_bytes_of_enwik8() -> None:
    vocabulary = Vocabulary()
    assert len(vocabulary) == 205
    assert vocabulary.decode(vocabulary.encode(TEXT)) == TEXT
    assert Vocabulary().count_unknown(corpus.excerpt().bytes) == 0


def test_the_excerpt_is_the_default_and_is_split_90_5_5() -> None:
    text = corpus.load()
    assert text.name == "enwik8 excerpt"
    assert not text.is_enwik8
    sizes = [len(text.split(name)) for name in ("train", "valid", "test")]
    assert sum(sizes) == len(text.bytes)
    assert sizes[1] == sizes[2] == len(text.bytes) // 20
    assert text.bytes[:9].tobytes() == b"  <page>\n"


def test_splits_of_enwik8s_size_are_90_5_and_5_million() -> None:
    text = corpus.Corpus("x", np.broadcast_to(np.uint8(32), (corpus.ENWIK8_BYTES,)))
    assert [len(text.split(name)) for name in ("train", "valid", "test")] == [90_000_000, 5_000_000, 5_000_000]


def test_a_text_is_found_by_path_environment_and_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, packed, zipped = tmp_path / "my.txt", tmp_path / "my.txt.gz", tmp_path / "my.zip"
    raw.write_bytes(TEXT)
    packed.write_bytes(gzip.compress(TEXT))
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("my.txt", TEXT)
    for path in (raw, packed, zipped, packed):  # the second time from the cache
        assert corpus.load(path).bytes.tobytes() == TEXT
    monkeypatch.setenv("GFRNN_DATA", str(packed))
    assert corpus.load().bytes.tobytes() == TEXT


def test_the_cache_folder_is_looked_into(own_cache: Path) -> None:
    own_cache.mkdir()
    (own_cache / "enwik8").write_bytes(TEXT)
    with pytest.raises(DataError, match="is not enwik8"):
        corpus.load()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def damaged_gz(folder: Path) -> Path:
    content = bytearray(gzip.compress(TEXT))
    content[len(content) // 2] ^= 0x10
    return write(folder / "flipped.gz", bytes(content))


def two_files(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "two.zip", "w") as archive:
        archive.writestr("a", TEXT)
        archive.writestr("b", TEXT)
    return folder / "two.zip"


def bomb(folder: Path) -> Path:
    return write(folder / "bomb.gz", gzip.compress(bytes(100 << 20), compresslevel=9))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda d: d / "missing.txt", "does not exist"),
        (lambda d: write(d / "empty.txt", b""), "is empty"),
        (lambda d: write(d / "enwik8", TEXT), f"expected 100000000 bytes with sha1 {corpus.ENWIK8_SHA1}, found"),
        (lambda d: write(d / "cut.gz", gzip.compress(TEXT)[:-20]), "damaged"),
        (damaged_gz, "damaged"),
        (lambda d: write(d / "no.zip", TEXT), "damaged or not a .zip"),
        (two_files, "holds 2 files"),
        (bomb, "unpacks to more than"),
        (lambda d: d, "folder without enwik8"),
    ],
)
def test_bad_data_is_refused_by_name(make: object, sentence: str, tmp_path: Path, own_cache: Path) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    with pytest.raises(DataError, match=sentence) as raised:
        corpus.load(path)
    assert str(path) in str(raised.value)
    assert not [found for found in own_cache.rglob("*") if found.is_file()]


def test_a_flipped_excerpt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "EXCERPT_SHA256", "0" * 64)
    with pytest.raises(DataError, match=f"expected sha256 {'0' * 64}, found"):
        corpus.excerpt()


def test_download_keeps_only_what_has_the_right_sum(tmp_path: Path, own_cache: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("enwik8", TEXT)
    with pytest.raises(DataError, match=f"expected sha1 {corpus.ENWIK8_SHA1}, found"):
        corpus.download((tmp_path / "other.zip").as_uri())
    assert list(own_cache.iterdir()) == []


def test_download_keeps_what_has_the_right_sum(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    monkeypatch.setattr(corpus, "ENWIK8_SHA1", hashlib.sha1(TEXT).hexdigest())
    with zipfile.ZipFile(tmp_path / "this.zip", "w") as archive:
        archive.writestr("enwik8", TEXT)
    assert corpus.download((tmp_path / "this.zip").as_uri()) == own_cache / "enwik8.zip"
    assert corpus.load().is_enwik8


def test_download_offline_says_what_to_fetch() -> None:
    with pytest.raises(DataError, match=f"cannot be reached.*--data PATH.*{corpus.ENWIK8_SHA1}"):
        corpus.download("http://127.0.0.1:9/enwik8.zip")


def test_an_unknown_byte_is_named_with_its_offset_or_replaced() -> None:
    vocabulary = Vocabulary()
    with pytest.raises(DataError, match=r"0xff at offset 3"):
        vocabulary.encode(b"abc\xffd")
    with pytest.raises(DataError, match=r"0x0d \('\\r'\) at offset 1"):
        vocabulary.encode(b"a\r\n")
    assert vocabulary.decode(vocabulary.encode(b"abc\xffd", unknown="replace")) == b"abc?d"
    assert vocabulary.count_unknown(np.frombuffer(b"a\r\xff", dtype=np.uint8)) == 2


def test_a_text_shorter_than_a_batch_or_a_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fewer than one minibatch of 300 rows x 100"):
        tiny(tmp_path, rows=300, length=100).build_task()
    with pytest.raises(DataError, match="too few to split"):
        tiny(tmp_path).replace(data=str(write(tmp_path / "short", b"abc"))).build_task()
    with pytest.raises(UsageError, match="unknown split"):
        corpus.excerpt().split("dev")


def test_unknown_bytes_in_training_are_learnt_refused_or_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "crlf.txt", TEXT.replace(b"\n", b"\r\n"))
    assert len(tiny(tmp_path).replace(data=str(path)).build_task().build_model(1).vocabulary) == 256
    with pytest.raises(DataError, match=r"0x0d.*offset 44"):
        tiny(tmp_path).replace(data=str(path), unknown="refuse").build_task()
    task = tiny(tmp_path).replace(data=str(path), unknown="replace").build_task()
    assert task.notes() == [f"{path}: 40 bytes outside the vocabulary are read as '?'"]


def test_a_row_reads_on_where_it_stopped_and_all_rows_together_read_everything(tmp_path: Path) -> None:
    task = tiny(tmp_path, rows=4, length=10).build_task()
    everything = slice(0, 4)
    text = task.vocabulary.encode(task.train)
    for step in (0, 1, 449, 450):
        now, then = task.batch(7, step, everything), task.batch(7, step + 1, everything)
        assert now.shape == (11, 4)
        assert (now[-1] == then[0]).all()
    assert task.epoch == len(task.train) / 40 == 450
    seen = np.concatenate([task.batch(7, step, everything)[:-1].T.flatten().numpy() for step in range(450)])
    assert (np.bincount(seen, minlength=205) == np.bincount(text, minlength=205)).all()


def test_a_batch_depends_on_seed_and_step_alone_and_rows_can_be_shared_out(tmp_path: Path) -> None:
    task, other = tiny(tmp_path, rows=5).build_task(), tiny(tmp_path, rows=5).build_task()
    whole = task.batch(3, 11, slice(0, 5))
    other.batch(3, 12, slice(0, 5))
    assert (other.batch(3, 11, slice(0, 5)) == whole).all()
    assert (other.batch(3, 11, slice(1, 3)) == whole[:, 1:3]).all()
    assert (task.batch(4, 11, slice(0, 5)) != whole).any()
