"""`gfrnn run-program`: the page, the JSON, and a sentence for everything it cannot answer."""

import io
import json
import sys
from pathlib import Path

import pytest
import torch

from gfrnn.cli import main
from gfrnn.cli.run_program import page
from gfrnn.models import CharLM
from gfrnn.models.seq2seq import Answer, Seq2Seq

Capture = pytest.CaptureFixture[str]
SOURCE = "a=7\nfor x in range(3):a-=2\nprint((a*4))"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(5)
    folder = tmp_path / "model"
    Seq2Seq("gru", 6, 2).save_pretrained(folder)
    return folder


def test_page_shows_program_answer_confidence_and_truth() -> None:
    text = page(SOURCE, "-4", [Answer("-4", (0.5, 0.25, 0.75))])
    assert "    for x in range(3):a-=2\n" in text
    assert "the model says  -4   (right; probability 0.094)" in text
    assert "the truth is    -4" in text
    symbols, confidence = text.splitlines()[-2:]
    assert symbols.split() == ["symbol", "-", "4", "end"]
    assert confidence.split()[-3:] == ["50", "25", "75"]
    assert "(wrong;" in page(SOURCE, "4", [Answer("-4", (0.5, 0.25, 0.75))])
    assert "also considered\n                44   0.1" in page(
        SOURCE, "4", [Answer("4", (1.0, 1.0)), Answer("44", (0.1,))]
    )


def test_file_and_json(model: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "program.py"
    file.write_text(SOURCE + "\n")
    assert main(["run-program", str(model), str(file)]) == 0
    assert "the truth is    4" in capsys.readouterr().out
    assert main(["run-program", str(model), str(file), "--json", "--beam", "3"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["source"], said["truth"], len(said["answers"])) == (SOURCE, "4", 3)
    best = Seq2Seq.from_pretrained(model).beam(SOURCE, 3)[0]
    assert said["answers"][0]["answer"] == best.text
    assert said["answers"][0]["confidence"] == pytest.approx(best.confidence)


@pytest.mark.parametrize("words", [[], ["-"]])
def test_standard_input(model: Path, words: list, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"print((3+4))\n")))
    assert main(["run-program", str(model), *words]) == 0
    assert "the truth is    7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "program.py is empty"),
        (b"\n \n", "program.py is empty"),
        (b"\xff\xfe", "program.py is not text: byte 0 is not UTF-8"),
        (b"print(1)\r\n", "line 1, column 9: a carriage return"),
        (b"\tprint(1)", "line 1, column 1: a tab"),
        (b"import os", "line 1, column 2: 'm' is not one of the language's 40 symbols"),
        (b"a=1\ndel a\nprint(a)", "line 2, column 1: `del a` is not something the language has"),
        ("print('é')".encode(), 'line 1, column 7: "\'" is not one of'),
        (b"print((%s*%s))" % (b"9" * 4000, b"9" * 4000), "comes to more than 62 digits"),
        (b"print()", "print takes one value"),
        (b"print(" + b"1" * 100_000 + b")", "characters; at most 10,000 are read"),
    ],
)
def test_outside_the_language(model: Path, tmp_path: Path, content: bytes, sentence: str, capsys: Capture) -> None:
    file = tmp_path / "program.py"
    file.write_bytes(content)
    assert main(["run-program", str(model), str(file)]) == 3
    out, err = capsys.readouterr()
    assert sentence in err
    assert "program.py" in err
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("order", ["run file --beam 2 --json", "run --beam 2 --json file", "--json run --beam=2 file"])
def test_options_may_stand_anywhere(model: Path, tmp_path: Path, order: str, capsys: Capture) -> None:
    file = tmp_path / "my program.py"
    file.write_text(SOURCE)
    places = {"run": str(model), "file": str(file)}
    assert main(["run-program", *(places.get(word, word) for word in order.split())]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["source"], len(said["answers"])) == (SOURCE, 2)


def test_a_closed_standard_input(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    for words in (["run-program", str(model)], ["generate", "--prompt-file", "-"]):
        assert main(words) == 3
        assert capsys.readouterr().err == "gfrnn: standard input is closed: name a file\n"


def test_wrong_arguments(model: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "program.py"
    file.write_text("print(1)")
    CharLM(hidden_size=3, num_layers=1).save_pretrained(tmp_path / "text")
    for words, code, sentence in (
        ([str(tmp_path / "nowhere"), str(file)], 3, "neither a folder nor a model"),
        ([str(tmp_path / "text"), str(file)], 3, "holds a text model (CharLM), not a program model (Seq2Seq)"),
        ([str(model), str(tmp_path / "no.py")], 3, "no.py cannot be read"),
        ([str(model), str(file), "--beam", "0"], 2, "--beam must be from 1 to 1000"),
    ):
        assert main(["run-program", *words]) == code
        assert sentence in capsys.readouterr().err
