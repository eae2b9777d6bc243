"""`gfrnn completion`: the scripts are shell, and bash offers with them what the parsers know."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess

import pytest

from gfrnn.cli import VERBS, main
from gfrnn.cli import train as train_verb
from gfrnn.cli.options import parser_of
from gfrnn.recipes import load

needs_shtab = pytest.mark.skipif(not importlib.util.find_spec("shtab"), reason="needs shtab, the extra [completion]")
needs_bash = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    return out


@needs_shtab
@needs_bash
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("gfrnn ", set(VERBS)),
        ("gfrnn ex", {"export", "explore"}),
        ("gfrnn export --for", {"--format", "--force"}),
        ("gfrnn export --format ", {"onnx", "torch-export", "hf"}),
        ("gfrnn train modern-gated-l", {"modern-gated-lstm"}),
        ("gfrnn launch train modern-gated-l", {"modern-gated-lstm"}),
        ("gfrnn train modern-gated-lstm --hidden", {"--hidden-size"}),
        ("gfrnn completion z", {"zsh"}),
    ],
)
def test_bash_completes(typed: str, offered: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    *words, last = typed.split(" ")
    ask = """
    COMP_WORDS=({words} "{last}"); COMP_CWORD={place}; COMP_LINE="{typed}"; COMP_POINT=${{#COMP_LINE}}
    "$(complete -p gfrnn | sed -E 's/.*-F ([^ ]+) .*/\\1/')"
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """.format(words=" ".join(words), last=last, place=len(words), typed=typed)
    done = subprocess.run(["bash", "-c", script("bash", capsys) + ask], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {word for word in done.stdout.split() if not word.startswith("-h")}
    assert offered <= found
    assert {word for word in found if not word.startswith(last)} <= {"--help"}


@needs_shtab
@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_the_other_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert all(verb in text for verb in VERBS) and "hidden-size" in text and next(iter(load())) in text


def test_without_shtab_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "shtab" else found(name))
    assert main(["completion", "bash"]) == 2
    assert "needs shtab, not installed here: pip install shtab" in capsys.readouterr().err
    assert main(["completion", "fish"]) == 2
    assert "'fish' is none of bash, zsh, tcsh" in capsys.readouterr().err


def test_a_parser_that_is_taken_prints_nothing_and_the_next_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--hidden-size" in parser_of(train_verb.main).known_options
    assert capsys.readouterr().out == ""
    assert main(["train", "--help"]) == 0
    assert "--hidden-size" in capsys.readouterr().out
