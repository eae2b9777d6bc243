"""Command lines and configurations of all sorts: one sentence and the right exit code, never a traceback."""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import ask, command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runs import run_tiny
from test_disk import words

Survived = Callable[[int, int, str], None]
VERBS = ("train", "eval", "generate", "recipes", "data", "plot", "programs", "run-program", "doctor")
# Not tried: the network, and sizes that only take long.
SPARED = {"--download", "--minutes", "--num-layers", "--debug", "--help", "--samples", "--chars", "--count", "--first"}
NASTY = (
    *("", " ", "-", "--", "0", "-0", "1", "2", "3", "-1", "007", "3.5", "-2.5", "1e3", "1e308", "-1e308", "1e999"),
    *("nan", "inf", "-inf", "99999999999999999999", "-99999999999999999999", "9" * 5000, "0x10", "1_000", "١"),
    *("true", "false", "null", "None", "~", "[]", "[1]", "{}", "{a: b}", "!!python/object:os.system", "*a", "&a"),
    *("a", "ü", "\udcff", "a\nb", "\t", "%s", "{0}", "$(true)", "@file", "#", "'", '"', "a" * 2000, "/", "/dev/null"),
    *("..", "nowhere", "lstm", "gru", "tanh", "gated", "stacked", "adam", "cosine", "mix", "valid", "refuse", "auto"),
)
CODES = {0, 2, 3, 4}


def caged(folder: Path, *line: str) -> tuple[int, str, str]:
    """A command that cannot take the machine down with it."""
    os.chdir(folder)
    for name, limit in (("RLIMIT_AS", 8 << 30), ("RLIMIT_CPU", 60), ("RLIMIT_FSIZE", 1 << 28)):
        resource.setrlimit(getattr(resource, name), (limit, limit))
    os.environ["GFRNN_CACHE"] = str(folder / "cache")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return command(*line)


def answered(folder: Path, *line: str) -> None:
    code, out, error = ask(caged, folder, *line)
    said = f"gfrnn {' '.join(line)[:300]!r}: {code} {error[:300]}"
    assert code in CODES, said
    assert "Traceback" not in out + error, said
    if code:
        assert error.startswith("gfrnn: "), said
        assert error.count("\n") == 1, said
        assert len(error) < 1000 + max(map(len, line)), said  # what was typed, at most once


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    run_tiny(folder, updates=2)
    return folder


@pytest.fixture(scope="module")
def options(place: Path) -> dict[str, list[str]]:
    """Every option of every verb, as the help tells them."""
    found = {}
    for verb in VERBS:
        about = command(verb, *(["modern-gated-lstm"] if verb == "train" else []), "--help")[1]
        found[verb] = sorted(set(re.findall(r"--[a-z][a-z-]+", about)) - SPARED)
        assert found[verb], verb
    return found


def tries(quick: int, full: int) -> Any:
    """So many examples every day, so many in the soak."""
    return pytest.mark.parametrize("examples", [quick, pytest.param(full, marks=pytest.mark.soak)])


def fuzz(examples: int, test: Callable[[Any], None]) -> None:
    check = settings(max_examples=examples, suppress_health_check=list(HealthCheck))(given(st.data())(test))
    check()


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("train --seed 4294967296", 2, "seed is too large: 4294967296"),
        ("train --hidden-size 99999999999999999999", 2, "hidden_size is too large"),
        ("train --hidden-size 100000", 3, "out of memory"),
        ("train --epochs 1e308", 2, "epochs is too large: 1e[+]308"),
        ("train --forget-bias 1e308", 2, "forget_bias is too large"),
        ("train --threads 100000", 2, "--threads must be at most 256"),
        ("generate run --chars 3 --top-k 99999999999999999999", 0, "^$"),
        ("plot run --out /", 2, "'/' is no name"),
        ("programs --verify --seconds 1e308", 2, "at most 3600"),
    ],
)
def test_numbers_beyond_all_measure(line: str, code: int, sentence: str, place: Path) -> None:
    verb, *rest = line.split()
    start = [*words(place, "beyond"), "--minutes", "0.01"] if verb == "train" else [verb]
    found, _, error = ask(caged, place, *start, *rest)
    assert found == code, error
    assert re.search(sentence, error), error


@tries(15, 300)
def test_command_lines(examples: int, place: Path, options: dict[str, list[str]], survived: Survived) -> None:
    count = 0

    def one(data: Any) -> None:
        nonlocal count
        count += 1
        verb = data.draw(st.sampled_from(VERBS))
        line = [verb]
        if verb in ("eval", "generate", "plot", "run-program"):
            line.append(data.draw(st.sampled_from((str(place / "run"), str(place), "nowhere", ""))))
        if verb == "train":
            shutil.rmtree(place / "new", ignore_errors=True)
            line = [*words(place, "new"), "--minutes", "0.01"]
        if verb == "generate":
            line += ["--chars", "3"]
        for _ in range(data.draw(st.integers(0, 4))):
            line.append(data.draw(st.sampled_from([*options[verb], "--nonsense", "stray"])))
            line.append(data.draw(st.sampled_from(NASTY) | st.text(max_size=20)).replace("\0", ""))
        answered(place, *line)

    fuzz(examples, one)
    assert count >= examples
    survived(count, count, "command lines of all sorts")


@tries(12, 300)
def test_single_options_of_train(examples: int, place: Path, options: dict[str, list[str]], survived: Survived) -> None:
    """One strange value at a time gets further than many."""
    count = 0

    def one(data: Any) -> None:
        nonlocal count
        count += 1
        shutil.rmtree(place / "new", ignore_errors=True)
        option, value = data.draw(st.sampled_from(options["train"])), data.draw(st.sampled_from(NASTY))
        answered(place, *words(place, "new"), "--minutes", "0.01", f"{option}={value}")

    fuzz(examples, one)
    assert count >= examples
    survived(count, count, "strange values of one option of train")


@tries(12, 200)
def test_configurations(examples: int, place: Path, survived: Survived) -> None:
    count, original = 0, (place / "run/config.yaml").read_text()
    lines = original.splitlines()

    def one(data: Any) -> None:
        nonlocal count
        count += 1
        changed = list(lines)
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(changed) - 1))
            key, _, _ = changed[at].partition(":")
            strange = data.draw(st.sampled_from(NASTY) | st.text(max_size=20))
            changed[at : at + 1] = data.draw(
                st.sampled_from(([f"{key}: {strange}"], [], [strange], [changed[at], changed[at]], [f" {changed[at]}"]))
            )
            changed = changed or [""]
        path = place / "run/config.yaml"
        path.write_bytes("\n".join(changed).encode(errors="surrogateescape"))
        answered(place, *data.draw(st.sampled_from((["eval", "run"], ["train", "modern-gated-lstm", "--out", "run"]))))

    fuzz(examples, one)
    (place / "run/config.yaml").write_text(original)
    assert count >= examples
    survived(count, count, "configurations of all sorts")


@tries(8, 200)
def test_flipped_text_files(examples: int, place: Path, survived: Survived) -> None:
    """Files without a checksum: whatever a flipped bit makes of them, there is a sentence or a result."""
    count = 0
    kept = {
        name: (place / "run" / name).read_bytes() for name in ("config.yaml", "metrics.jsonl", "env.json", "LATEST")
    }
    commands = (["plot", "run", "--out", "figure"], ["eval", "run"], ["train", "modern-gated-lstm", "--out", "run"])

    def one(data: Any) -> None:
        nonlocal count
        count += 1
        name = data.draw(st.sampled_from(sorted(kept)))
        at = data.draw(st.integers(0, 8 * len(kept[name]) - 1))
        content = bytearray(kept[name])
        content[at // 8] ^= 1 << at % 8
        (place / "run" / name).write_bytes(content)
        answered(place, *data.draw(st.sampled_from(commands)))
        (place / "run" / name).write_bytes(kept[name])

    fuzz(examples, one)
    assert count >= examples
    survived(count, count, "flipped bits in files without a checksum")
