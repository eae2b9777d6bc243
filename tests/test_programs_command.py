"""`gfrnn programs`, and the check by Python itself."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gfrnn.cli import main
from gfrnn.errors import DataError
from gfrnn.tasks.programs import Program, stream, verify
from gfrnn.tasks.programs.language import evaluate
from gfrnn.tasks.programs.verify import PythonRunner, verified

Capture = pytest.CaptureFixture[str]


def lines(capsys: Capture) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_lines_are_the_stream(capsys: Capture) -> None:
    options = "--count 20 --max-length 10 --max-nesting 5 --curriculum mix --seed 7 --json"
    assert main(["programs", *options.split()]) == 0
    printed = lines(capsys)
    assert [list(row) for row in printed] == [["source", "target", "length", "nesting"]] * 20
    assert [Program(**row) for row in printed] == list(stream(7, 20))


def test_literals_as_the_original_drew_them(capsys: Capture) -> None:
    cell = ["programs", "--count", "300", "--length", "10", "--nesting", "1", "--json"]
    assert main([*cell, "--literals", "original", "--verify"]) == 0
    assert max(int(n) for row in lines(capsys) for n in re.findall(r"\d+", row["source"])) <= 2**32
    assert main(cell) == 0
    assert max(int(n) for row in lines(capsys) for n in re.findall(r"\d+", row["source"])) > 2**32


def test_a_fixed_cell_verified(capsys: Capture) -> None:
    assert main(["programs", "--count", "30", "--length", "3", "--nesting", "2", "--verify", "--json"]) == 0
    assert {(row["length"], row["nesting"]) for row in lines(capsys)} == {(3, 2)}


def test_naive_reaches_the_maximum_within_the_count(capsys: Capture) -> None:
    assert main(["programs", "--count", "50", "--curriculum", "naive", "--json"]) == 0
    printed = lines(capsys)
    assert (printed[0]["nesting"], printed[0]["length"]) == (1, 1)
    assert (printed[-1]["nesting"], printed[-1]["length"]) == (5, 10)


def test_text_output_can_be_run(capsys: Capture) -> None:
    assert main(["programs", "--count", "5", "--split", "test"]) == 0
    blocks = capsys.readouterr().out.strip().split("\n\n")
    assert len(blocks) == 5
    for block in blocks:
        source, answer = block.split("\n# ")
        assert str(evaluate(source)) == answer


@pytest.mark.parametrize("seen", [True, False])
def test_a_bar_beside_the_data_where_a_terminal_shows_it(seen: bool, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gfrnn", "programs", "--count", "30000", "--json"]
    terminal, error = pty.openpty() if seen else os.pipe()  # read one, write to the other
    file = tmp_path / "programs"
    with file.open("w") as out, subprocess.Popen(words, stdout=out, stderr=error) as process:
        os.close(error)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal whose other end is closed says so
            while part := os.read(terminal, 1 << 16):
                shown += part
    os.close(terminal)
    assert process.returncode == 0
    assert [Program(**json.loads(line)) for line in file.read_text().splitlines()] == list(stream(1, 30_000))
    assert (b"programs" in shown and b"%" in shown) if seen else shown == b""


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ("--length 0", 2, "length 0 is out of range: 1 to 10"),
        ("--length 11", 2, "length 11 is out of range: 1 to 10"),
        ("--nesting 6", 2, "nesting 6 is out of range: 1 to 5"),
        ("--max-nesting 11", 2, "max-nesting 11 is out of range: 1 to 10"),
        ("--max-length -1", 2, "max-length -1 is out of range"),
        ("--count 0", 2, "--count must be at least 1"),
        ("--curriculum blend", 2, "blend"),
        ("--verify --seconds 0", 2, "--seconds must be more than 0"),
        ("--span 3", 2, "--span is for the curricula naive and combined"),
        ("--seconds 3", 2, "--seconds is the time limit of --verify"),
        ("--lenght 3", 2, "did you mean '--length'"),
        ("--read nowhere.jsonl", 3, "nowhere.jsonl"),
        ("--read nowhere.jsonl --count 10", 2, "--read takes the programs of a file as they are: --count would"),
        (
            "--read x --split test --seed 1 --length 2 --max-length 9",
            2,
            "--max-length, --length, --split, --seed would",
        ),
        ("--read x --curriculum mix --span 3 --first 0 --nesting 1 --max-nesting 5", 2, "--nesting, --first would"),
    ],
)
def test_bad_options_are_one_sentence(options: str, code: int, sentence: str, capsys: Capture) -> None:
    assert main(["programs", *options.split()]) == code
    out, err = capsys.readouterr()
    assert sentence in err
    assert out == ""
    assert err.count("\n") == 1


def edited(source: str = "print((3+4))", target: str = "7", length: object = 1, nesting: object = 1) -> str:
    return json.dumps({"source": source, "target": target, "length": length, "nesting": nesting}) + "\n"


ENDLESS = "a=1\nfor x in range(9999999999):a+=1\nprint(a)"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        (edited()[:-20], "line 1: not a JSON object"),
        ("[]\n", "exactly the keys source, target, length, nesting"),
        (edited(length="1"), '"length" is not a whole number'),
        (edited(nesting=0), "counted from 1"),
        (edited(source=""), "the program is empty"),
        (edited(source="print(3\t+4)"), "line 1, column 8: a tab is not"),
        (edited(source="a=3;\r\nprint(a)"), "line 1, column 5: a carriage return"),
        (edited(source="print(3)\nimport"), "line 2, column 2: 'm' is not"),
        (edited(target="7.0"), "'.' is neither a digit nor '-'"),
        (edited() + edited(target="8"), "line 2"),
    ],
)
@pytest.mark.parametrize("verify", [[], ["--verify"]])
def test_an_edited_file_is_refused(tmp_path: Path, text: str, sentence: str, verify: list, capsys: Capture) -> None:
    path = tmp_path / "programs.jsonl"
    path.write_text(text)
    assert main(["programs", "--read", str(path), *verify]) == 3
    err = capsys.readouterr().err
    assert str(path) in err
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("verify", "sentence"), [([], "`a` has no value yet"), (["--verify"], "NameError: name 'a' is not defined")]
)
def test_a_variable_without_a_value_is_refused(tmp_path: Path, verify: list, sentence: str, capsys: Capture) -> None:
    path = tmp_path / "programs.jsonl"
    path.write_text(edited() + edited(source="print(a)"))
    assert main(["programs", "--read", str(path), *verify]) == 3
    err = capsys.readouterr().err
    assert f"{path} line 2: " in err
    assert sentence in err


def test_an_endless_loop_meets_the_time_limit(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "programs.jsonl"
    path.write_text(edited(ENDLESS, "10000000000"))
    assert main(["programs", "--read", str(path), "--verify", "--seconds", "0.2"]) == 3
    assert "line 1: the program did not end within 0.2 seconds of CPU time" in capsys.readouterr().err
    assert main(["programs", "--read", str(path)]) == 0  # the language's own reader adds it up at once


CHATTER = "a=1\nfor x in range(9999):print(123456789)\nprint(a)"


def test_runner_survives_what_a_program_does_to_it() -> None:
    with PythonRunner(seconds=0.3) as run:
        assert run("print((2+3))") == "5"
        for wrong, sentence in (
            (ENDLESS, r"did not end within 0\.3 seconds of CPU time"),
            ("print(b)", "does not run: NameError"),
            ("x=(1 if 2 else", "does not run: SyntaxError"),
            (CHATTER, "prints more than 65,536 bytes"),
        ):
            with pytest.raises(DataError, match=sentence):
                run(wrong)
        assert run("print((2-3))") == "-1"


def test_a_program_is_not_charged_for_a_slow_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {sys.executable} "$@"\n')
    slow.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(slow))
    with PythonRunner(seconds=0.2) as run:
        assert run("print((2+3))") == "5"


def test_a_program_is_not_charged_for_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is stopped for longer than the program's time, as a busy machine would; then for good."""
    with PythonRunner(seconds=0.1) as run:
        assert run("print(1)") == "1"
        assert run._process is not None
        os.kill(run._process.pid, signal.SIGSTOP)
        threading.Timer(0.6, os.kill, (run._process.pid, signal.SIGCONT)).start()
        assert run("print(2)") == "2"
        monkeypatch.setattr(verify, "PATIENCE", 0.0)
        os.kill(run._process.pid, signal.SIGSTOP)
        with pytest.raises(DataError, match="did not end"):
            run("print(3)")


def test_a_process_that_died_between_two_programs_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    original, runners = PythonRunner.__call__, []

    def call(self: PythonRunner, source: str) -> str:
        if runners:  # the second program
            assert self._process is not None
            self._process.kill()
            self._process.wait()
        runners.append(self)
        return original(self, source)

    monkeypatch.setattr(PythonRunner, "__call__", call)
    assert main(["programs", "--count", "3", "--verify"]) == 3
    err = capsys.readouterr().err
    assert "program 2: the process that runs the programs is gone (ended by signal 9)" in err
    assert err.count("\n") == 1
    assert len(runners) == 2


def test_a_process_that_cannot_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with PythonRunner() as run, pytest.raises(DataError, match="did not start"):
        run("print(1)")


def test_a_hard_limit_on_memory_below_ours_is_kept_to() -> None:
    command = f"ulimit -v 200000; exec {sys.executable} -m gfrnn programs --count 2 --verify"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Python agrees with 2 of 2 programs" in done.stderr
    assert done.returncode == 0


def test_runner_has_no_environment_and_no_builtins() -> None:
    with PythonRunner() as run:
        with pytest.raises(DataError, match="NameError"):
            run("print(dir())")
        run("print(1)")
        assert run._process is not None
        environment = Path(f"/proc/{run._process.pid}/environ")
        if environment.exists():
            assert environment.read_bytes() == b""


def test_the_first_disagreement_stops() -> None:
    good = list(stream(1, 3))
    wrong = good[1]._replace(target=str(int(good[1].target) + 1))
    passed = verified([good[0], wrong, good[2]])
    assert next(passed) == good[0]
    with pytest.raises(DataError, match="program 2 prints"):
        next(passed)
