"""The command line: exit codes, one sentence per error, help without torch, and every verb once."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import forked
import pytest
from runs import TINY, run_tiny, write_text

from gfrnn import cli
from gfrnn.cli import main
from gfrnn.cli.progress import Bar
from gfrnn.training import checkpoint


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("cli")
    run_tiny(folder)
    return folder / "run"


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and the one sentence of a command that fails."""
    code = main([str(word) for word in words])
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("gfrnn: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    return code, error


def answer(capsys: pytest.CaptureFixture[str], *words: Any) -> Any:
    assert main([str(word) for word in words]) == 0
    return json.loads(capsys.readouterr().out)


def test_help_never_imports_torch() -> None:
    code = (
        "import sys; from gfrnn.cli import main, VERBS\n"
        "for words in ([], *([verb] for verb in VERBS)):\n"
        "    assert main([*words, '--help']) == 0, words\n"
        "    assert 'torch' not in sys.modules, words\n"
        "assert main(['recipes']) == 0 and 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gfrnn train RECIPE" in done.stdout


def test_it_is_a_module_too() -> None:
    done = subprocess.run([sys.executable, "-m", "gfrnn", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["train"], "name a recipe first"),
        (["train", "hutter-gated-lsmt"], "unknown recipe 'hutter-gated-lsmt'; did you mean 'hutter-gated-lstm'?"),
        (
            ["train", "hutter-gated-lstm", "--hiden-size", "3"],
            "unknown option --hiden-size; did you mean '--hidden-size'",
        ),
        (["train", "hutter-gated-lstm", "--hidden-size", "abc"], "--hidden-size: expected a whole number, got 'abc'"),
        (["train", "hutter-gated-lstm", "--hidden-size", "0"], "hidden_size must be at least 1, got 0"),
        (["train", "hutter-gated-lstm", "--learning-rate=-1"], "learning_rate must be greater than 0"),
        (["train", "hutter-gated-lstm", "--learning-rate", "nan"], "--learning-rate: expected a number, got 'nan'"),
        (["train", "hutter-gated-lstm", "--clip", "much"], "--clip: expected a number or null, got 'much'"),
        (
            ["train", "hutter-gated-lstm", "--unit", "ltsm"],
            "'ltsm' is none of tanh, gru, lstm, bounded-lstm; did you mean 'lstm'?",
        ),
        (["train", "hutter-gated-lstm", "--updates", "-3"], "updates must be at least 1"),
        (["train", "hutter-gated-lstm", "--threads", "0"], "--threads must be at least 1"),
        (["train", "hutter-gated-lstm", "stray"], "unexpected argument 'stray'"),
        (["eval", "x", "--split", "dev"], "'dev' is none of train, valid, test, all"),
        (["plot"], "required: runs"),
        (["train", "hutter-gated-lstm", "--validate-chars", "1"], "one character alone cannot be scored"),
        (["train", "hutter-single-lstm", "--dropout", "0.5"], "it needs num_layers of at least 2"),
        (["eval", "--quick"], "--quick is for program models"),
    ],
)
def test_usage_errors_are_2(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = refused(capsys, *words)
    assert code == 2
    assert sentence in error


def test_bad_data_and_models_are_3(tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"abc\xffdef" * 100)
    for words, sentence in (
        (["train", "hutter-gated-lstm", "--data", tmp_path / "none"], "does not exist"),
        (
            ["train", "hutter-gated-lstm", "--data", bad, "--rows", 2, "--length", 5, "--unknown", "refuse"],
            "0xff at offset 3",
        ),
        (["data", "--data", tmp_path / "none"], "does not exist"),
        (["eval", run, "--data", bad], "0xff at offset 3"),
        (["eval", tmp_path], "a folder without a model"),
        (["generate", tmp_path / "none"], "neither a folder nor a model"),
        (["generate", run, "--prompt-file", bad], "the prompt has the byte 0xff at offset 3"),
        (["generate", run, "--prompt-file", tmp_path / "none"], "cannot be read"),
        (["plot", tmp_path], "is not a run folder"),
    ):
        out = ["--out", tmp_path / "out"] if words[0] == "train" else []
        code, error = refused(capsys, *words, *out)
        assert code == 3, error
        assert sentence in error


def test_prompts_that_make_no_sense_are_2(tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").touch()
    for words, sentence in (
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt-file", tmp_path / "empty"], "is empty"),
        (["--prompt", "a", "--prompt-file", "b"], "not both"),
        (["--prompt", "a", "--chars", "-1"], "--chars is 0 or more"),
        (["--prompt", "a", "--compare", run, "--samples", "2"], "leave --samples away"),
        (["--prompt", "a", "--top-p", "2"], "top_p must be in (0, 1]"),
    ):
        code, error = refused(capsys, "generate", run, *words)
        assert code == 2
        assert sentence in error


def tiny_words(folder: Path, **options: Any) -> list[str]:
    options = {**TINY, **options}
    del options["epochs"]
    pairs = [(f"--{key.replace('_', '-')}", str(value)) for key, value in options.items()]
    return ["train", "modern-gated-lstm", "--data", write_text(folder), *(word for pair in pairs for word in pair)]


def test_train_then_eval_generate_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    result = answer(capsys, *tiny_words(tmp_path), "--out", out, "--json")
    assert (result["updates"], result["already_done"]) == (12, False)
    assert answer(capsys, *tiny_words(tmp_path), "--out", out, "--json")["already_done"]
    valid = answer(capsys, "eval", out, "--split", "valid", "--json")
    assert valid["bpc"] == pytest.approx(result["bpc"], abs=1e-6)
    assert (valid["characters"], valid["split"]) == (1000, "valid")
    own = answer(capsys, "eval", out, "--json")
    assert (own["characters"], own["split"], own["text"]) == (1000, "test", write_text(tmp_path))
    assert "paper_bpc" not in own
    (sample,) = answer(capsys, "generate", out, "--prompt", "<page>", "--chars", 30, "--seed", 3, "--json")
    assert sample["prompt"] == "<page>"
    assert sample["tags"]["page"] == [1, 0]
    both = answer(capsys, "generate", out, "--compare", out, "--chars", 20, "--json")
    assert both[0]["text"] == both[1]["text"]
    assert main(["generate", str(out), "--compare", str(out), "--chars", "20", "--samples", "1"]) == 0
    assert "opened/closed" in capsys.readouterr().out
    assert main(["plot", str(out), str(out), "--out", str(tmp_path / "figure")]) == 0
    assert capsys.readouterr().out.split() == [f"{tmp_path}/figure.svg", f"{tmp_path}/figure.png"]
    assert b"<svg" in (tmp_path / "figure.svg").read_bytes()


def test_progress_is_plain_lines_without_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gfrnn.cli.progress.PLAIN_SECONDS", 0.0)
    assert main([*tiny_words(tmp_path), "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "chars/s" in shown
    assert "update 12: validation bpc" in shown


def test_data_reports_and_recipes_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = answer(capsys, "data", "--data", write_text(tmp_path), "--json")
    assert (report["bytes"], report["train"], report["enwik8"], report["unknown_bytes"]) == (20_000, 18_000, False, 0)
    rows = {row["recipe"]: row for row in answer(capsys, "recipes", "--json")}
    assert (rows["hutter-gated-lstm"]["paper"], rows["hutter-gated-lstm"]["parameters"]) == (1.842, 1_301_259)
    assert main(["recipes"]) == 0
    assert "1.842" in capsys.readouterr().out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_signals_save_and_exit(number: int, code: int, tmp_path: Path) -> None:
    words = [*tiny_words(tmp_path, updates=1_000_000), "--out", str(tmp_path / "run"), "--quiet"]
    process = forked.Popen([sys.executable, "-m", "gfrnn", *words], stderr=forked.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 5:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == code
    assert "the same command continues" in error
    assert checkpoint.Checkpoints(tmp_path / "run").latest() is not None


def test_a_full_disk_is_said_and_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checkpoint.write_folder

    def full(folder: Path, files: Any) -> None:
        if "step-9" in str(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "model.safetensors"))
        real(folder, files)

    monkeypatch.setattr(checkpoint, "write_folder", full)
    code, error = refused(capsys, *tiny_words(tmp_path), "--out", str(tmp_path / "run"), "--quiet")
    assert code == 3
    assert "no space left" in error
    assert "step-9" in error
    found = checkpoint.Checkpoints(tmp_path / "run").latest()
    assert found is not None
    assert found.step == 6


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with checkpoint.lock(tmp_path / "run"):
        code, error = refused(capsys, *tiny_words(tmp_path), "--out", tmp_path / "run")
    assert code == 2
    assert "in use by another process" in error


def test_an_exploded_run_is_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = tiny_words(tmp_path, learning_rate=3e38, schedule="constant", warmup=0, ema=0.0)
    code, error = refused(capsys, *words, "--out", tmp_path / "run", "--quiet")
    assert code == 4
    assert "not finite" in error


def test_a_defect_is_one_sentence_and_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(words: list[str]) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(cli, "run", broken)
    code, error = refused(capsys, "recipes")
    assert code == 1
    assert "oops" in error
    assert main(["recipes", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_closed_pipe_is_fine(run: Path) -> None:
    words = ["generate", str(run), "--chars", "20000", "--seed", "1"]
    with forked.Popen([sys.executable, "-m", "gfrnn", *words], stdout=forked.PIPE, stderr=forked.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert len(process.stdout.read(10)) == 10
        process.stdout.close()  # most of it is still to be written
        assert (process.wait(), process.stderr.read()) == (0, b"")


@pytest.mark.parametrize("error", [None, ValueError])
def test_plain_lines_end_with_the_end(
    error: type[Exception] | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the last part took less than the time between lines; but not if it came to nothing."""
    with contextlib.suppress(ValueError), Bar("reading") as bar:
        bar.show(0.25, "a text")
        if error:
            raise error
    with Bar("never shown"):
        pass
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["reading   25.0 %  a text", *(["reading  100.0 %  a text"] if error is None else [])]
