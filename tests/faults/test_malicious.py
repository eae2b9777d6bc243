"""Files made to hurt: refused by one sentence within 5 seconds of CPU and 500 MB of memory, nothing executed."""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bombs import crowded_zip, gzip_bomb, lying_zip, pipe_called, zip_bomb
from harness import ask, command
from runs import run_tiny

from gfrnn.storage import tensorfile

SECONDS, MEGABYTES = 5, 500
SENTENCES = "damaged|not (an? |one of|this run)|disagree|link|cannot be read|no (run|number)|must be|more than|nothing"
EXECUTING = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "ctypes.dlopen")
HARMLESS = (None, "git")  # the allocator is asked for by ctypes; the run log asks git for the commit


class Evil:
    def __init__(self, fired: Path) -> None:
        self.fired = fired

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.fired),)


def limited(cache: Path, *words: Any) -> tuple[int, str, int, list[str]]:
    """A command under limits: exit code, standard error, peak memory in bytes, and what was executed."""
    os.environ["GFRNN_CACHE"] = str(cache)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (MEGABYTES << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime) + 1 + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (until, until))
    executed: list[str] = []

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event in EXECUTING and args[0] not in HARMLESS:
            executed.append(f"{event} {args}")

    sys.addaudithook(watch)
    code, _, error = command(*words)
    return code, error, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, executed


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    run_tiny(folder, updates=2)
    return folder


def copy(folder: Path, good: Path) -> Path:
    shutil.copytree(good / "run", folder / "run", dirs_exist_ok=True)
    return folder / "run"


def vouch(folder: Path, **contents: bytes) -> None:
    """Change files of a checkpoint or a model, with a manifest that vouches for them."""
    names = sorted({path.name for path in folder.iterdir()} - {tensorfile.MANIFEST})
    known = {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    tensorfile.write_folder(folder, {**known, **{k.replace("__", "."): v for k, v in contents.items()}})


def resume(run: Path) -> list[Any]:
    return ["train", "modern-gated-lstm", "--out", run, "--quiet"]


def header(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def tensors(count: int) -> bytes:
    empty = '"dtype":"F32","shape":[0],"data_offsets":[0,0]'
    return header(("{" + ",".join(f'"t{n}":{{{empty}}}' for n in range(count)) + "}").encode())


PICKLE = "a pickle called .safetensors"
MODELS: dict[str, Callable[[Path], bytes]] = {
    PICKLE: lambda fired: pickle.dumps(Evil(fired)),
    "a header of 2^62 bytes": lambda fired: header(b"{}", 1 << 62),
    "a header of 2^64 - 1 bytes": lambda fired: header(b"{}", (1 << 64) - 1),
    "a million tensors": lambda fired: tensors(1_000_000),
    "as many tensors as a header may hold": lambda fired: tensors(tensorfile.HEADER_LIMIT // 64),
    "a tensor beyond the file": lambda fired: header(
        b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
    ),
    "a shape that overflows": lambda fired: (
        header(b'{"a":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807],"data_offsets":[0,4]}}')
        + b"abcd"
    ),
    "a header of brackets": lambda fired: header(b"[" * 1_000_000),
}


@pytest.mark.parametrize("kind", MODELS)
def test_model_files(kind: str, good: Path, tmp_path: Path, survived: Callable[[int, int, str], None]) -> None:
    fired = tmp_path / "fired"
    content = MODELS[kind](fired)
    run = copy(tmp_path, good)
    vouch(run / "best", model__safetensors=content)
    vouch(run / "checkpoints/step-2", train__safetensors=content)
    shutil.rmtree(run / "checkpoints/step-0", ignore_errors=True)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "model.safetensors").write_bytes(content)
    (alone / "config.json").write_bytes((run / "best/config.json").read_bytes())
    commands = [["generate", run], ["generate", alone], resume(run)]
    expect_refused(commands, fired, survived, kind)


def expect_refused(
    commands: list[list[Any]],
    fired: Path,
    survived: Callable[[int, int, str], None],
    kind: str,
    sentence: str = SENTENCES,
) -> None:
    """Every command is refused within the limits, nothing happens, and nothing is left."""
    count, cache = 0, fired.with_name("cache")
    for words in commands:
        code, error, memory, executed = ask(limited, cache, *words)
        assert (code, error.count("\n"), executed) == (3, 1, []), error
        assert error.startswith("gfrnn: "), error
        assert re.search(sentence, error), error
        assert memory < MEGABYTES << 20
        assert not fired.exists()
        assert not [path for path in cache.rglob("*") if path.is_file()]
        count += 1
    survived(count, len(commands), f"malicious files: {kind}")


def manifest(folder: Path, name: str) -> None:
    sums = json.loads((folder / "manifest.json").read_bytes())
    sums["files"][name] = {"sha256": "0" * 64, "bytes": 1}
    (folder / "manifest.json").write_text(json.dumps(sums))


def link(folder: Path, name: str, target: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to(target)


def pipe(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "a manifest with ../": lambda folder: manifest(folder, "../../../secret"),
    "a manifest with an absolute path": lambda folder: manifest(folder, "/etc/passwd"),
    "a manifest that is a list": lambda folder: void((folder / "manifest.json").write_text("[]")),
    "a manifest of brackets": lambda folder: void((folder / "manifest.json").write_text("[" * 1_000_000)),
    "a link to endless zeros": lambda folder: link(folder, "model.safetensors", "/dev/zero"),
    "a manifest that is a link": lambda folder: link(folder, "manifest.json", "/etc/passwd"),
    "a config that is a link to itself": lambda folder: link(folder, "config.json", "config.json"),
    "a pipe nobody writes to": lambda folder: pipe(folder, "config.json"),
    "a folder where a file should be": lambda folder: void(
        ((folder / "config.json").unlink(), (folder / "config.json").mkdir())
    ),
}


def void(_: Any) -> None:
    """For lambdas that return something."""


@pytest.mark.parametrize("kind", FOLDERS)
def test_model_folders(kind: str, good: Path, tmp_path: Path, survived: Callable[[int, int, str], None]) -> None:
    run = copy(tmp_path, good)
    shutil.rmtree(run / "checkpoints/step-0", ignore_errors=True)
    for folder in (run / "best", run / "checkpoints/step-2"):
        FOLDERS[kind](folder)
    expect_refused([["generate", run], ["eval", run], resume(run)], tmp_path / "fired", survived, kind)


LAUGHS = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))
CONFIGS: dict[str, str] = {
    "a YAML tag that calls": "!!python/object/apply:os.mkdir [FIRED]",
    "a YAML tag that makes an object": "task: !!python/object/new:os.mkdir [FIRED]\nrecipe: x",
    "a YAML tag that names a module": "task: !!python/module:antigravity\nrecipe: x",
    "references that grow a billionfold": f"l0: &l0 [lol]\n{LAUGHS}\ntask: hutter\nrecipe: *l29",
    "the same in a section": f"l0: &l0 [lol]\n{LAUGHS}\ntask: hutter\nrecipe: x\ndata: *l29",
    "the same in an option": f"l0: &l0 [lol]\n{LAUGHS}\ntask: hutter\nrecipe: x\ndata: {{rows: *l29}}",
    "brackets": "[" * 60_000,
    "a number of a million digits": f"task: {'9' * 60_000}",
    "a date that is none": "task: 2001-99-99",
    "ten megabytes": "a: b\n" * 2_000_000,
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_configurations(kind: str, good: Path, tmp_path: Path, survived: Callable[[int, int, str], None]) -> None:
    run, fired = copy(tmp_path, good), tmp_path / "fired"
    (run / "config.yaml").write_text(CONFIGS[kind].replace("FIRED", str(fired)))
    expect_refused([["eval", run], resume(run)], fired, survived, kind)


TEXTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "10 GB in a .gz of 10 MB": (gzip_bomb, "unpacks to more than 100 times its size"),
    "a .zip of zeros": (zip_bomb, "unpacks to more than 100 times its size"),
    "a .zip of zeros by bzip2": (lambda folder: zip_bomb(folder, zipfile.ZIP_BZIP2), "another way than"),
    "a .zip of zeros by lzma": (lambda folder: zip_bomb(folder, zipfile.ZIP_LZMA), "another way than"),
    "a .zip that lies about its size": (lying_zip, "damaged"),
    "a .zip of a million files": (crowded_zip, "its list of files is too long"),
    "a pipe": (pipe_called("text"), "is not a plain file"),
    "a pipe called .gz": (pipe_called("text.gz"), "is not a plain file"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_texts(kind: str, good: Path, tmp_path: Path, survived: Callable[[int, int, str], None]) -> None:
    make, sentence = TEXTS[kind]
    path = make(tmp_path)
    words = [["data", "--data", path], ["eval", good / "run", "--data", path]]
    words += [["train", "modern-gated-lstm", "--data", path, "--out", tmp_path / "out", "--quiet"]]
    expect_refused(words, tmp_path / "fired", survived, kind, f"{path}.*{sentence}")


LINES: dict[str, bytes] = {
    "brackets": b"[" * 1_000_000,
    "a step that is infinite": b'{"kind": "valid", "step": 1e999, "bpc": 1}\n',
    "a step that is a text": b'{"kind": "valid", "step": "1", "bpc": 1}\n',
    "a record without its number": b'{"kind": "valid", "step": 1, "bpc": 1, "seconds": 1, "characters": 1}\n'
    b'{"kind": "valid", "step": 2}\n',
    "a number that is a text": b'{"kind": "valid", "step": 1, "bpc": "1", "seconds": 1, "characters": 1}\n',
    "a program that calls": json.dumps(
        {"source": "print(__import__('os').system('true'))", "target": "0", "length": 1, "nesting": 1}
    ).encode()
    + b"\n",
}


@pytest.mark.parametrize("kind", LINES)
def test_lines(kind: str, good: Path, tmp_path: Path, survived: Callable[[int, int, str], None]) -> None:
    run = copy(tmp_path, good)
    (run / "metrics.jsonl").write_bytes(LINES[kind])
    (run / "grid.json").write_bytes(LINES[kind])
    commands = [["plot", run, "--out", tmp_path / "plot"], ["programs", "--read", run / "metrics.jsonl", "--verify"]]
    expect_refused(commands, tmp_path / "fired", survived, kind)


def test_endless_files(good: Path, tmp_path: Path, survived: Callable[[int, int, str], None]) -> None:
    run = copy(tmp_path, good)
    for name in ("metrics.jsonl", "config.yaml", "prompt"):
        (run / name).write_bytes(b"")
        os.truncate(run / name, 1 << 40)
    commands = [
        ["plot", run, "--out", tmp_path / "plot"],
        ["programs", "--read", run / "metrics.jsonl"],
        ["programs", "--read", run / "metrics.jsonl", "--verify"],
        ["eval", run],
        ["generate", good / "run", "--prompt-file", run / "prompt"],
    ]
    expect_refused(commands, tmp_path / "fired", survived, "a terabyte of nothing")
