"""The text commands where users stumble: folders that hold something else, other texts, closed pipes, quiet runs."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import forked
import numpy as np
import pytest
from runs import run_tiny, tiny
from test_cli import answer, refused, tiny_words

from gfrnn.cli import generate as generate_verb
from gfrnn.cli import main
from gfrnn.cli import train as train_verb
from gfrnn.errors import DataError, Preempted
from gfrnn.models import CharLM
from gfrnn.report.compare import side_by_side
from gfrnn.tasks.text import corpus
from gfrnn.tasks.text.task import TextTask
from gfrnn.training import checkpoint
from gfrnn.training.run import train
from gfrnn.training.signals import ctrl_c, leaving_at_once


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GFRNN_DATA", raising=False)
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("lost", [["checkpoints"], ["checkpoints", "best"], ["checkpoints", "config.yaml"]])
def test_a_run_that_lost_its_checkpoints_is_not_begun_again(tmp_path: Path, lost: list[str]) -> None:
    run_tiny(tmp_path)
    (tmp_path / "lost").mkdir()
    for name in lost:
        (tmp_path / "run" / name).rename(tmp_path / "lost" / name)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(DataError, match="no checkpoint: choose another --out"):
        run_tiny(tmp_path)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_out_must_not_be_a_model_or_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    CharLM(hidden_size=4, num_layers=1).save_pretrained(tmp_path / "model")
    (tmp_path / "file").touch()
    is_file = f"{tmp_path}/file is a file, not a folder"
    for name, sentence in (("model", "holds a saved model"), ("file", is_file), ("file/sub/sub", is_file)):
        code, error = refused(capsys, *tiny_words(tmp_path), "--out", tmp_path / name)
        assert code == 2
        assert sentence in error


@pytest.mark.parametrize("unread", ["stdout", "stderr"])
def test_training_goes_on_when_nobody_reads(unread: str, tmp_path: Path) -> None:
    quiet = ["--quiet", "--unknown", "replace"] if unread == "stderr" else []
    words = [*tiny_words(tmp_path, updates=30, validate_every=2), "--out", str(tmp_path / "run")]
    with (tmp_path / "text.txt").open("ab") as text:
        text.write(b"\x00")  # something to warn of
    command = [sys.executable, "-m", "gfrnn", *words, *quiet]
    with forked.Popen(command, stdout=forked.PIPE, stderr=forked.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        if unread == "stdout":
            assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == ""
        else:
            process.stderr.close()
            assert "updates             30\n" in process.stdout.read()
        assert process.wait() == 0
    latest = checkpoint.Checkpoints(tmp_path / "run").latest()
    assert latest is not None
    assert latest.step == 30


def test_quiet_runs_still_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--hidden-size", "4", "--updates", "2", "--validate-chars", "2000", "--rows", "2", "--length", "5"]
    words = ["train", "modern-stacked-lstm", *sizes, "--out", str(tmp_path / "run"), "--json"]
    assert main(words) == 0
    out, error = capsys.readouterr()
    assert error == f"{corpus.EXCERPT_NOTE}\n"
    assert json.loads(out)["data"] == "enwik8 excerpt"
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1] / "train.json"
    newest.write_bytes(newest.read_bytes() + b" ")
    assert main(words) == 0
    assert "damaged" in capsys.readouterr().err


def test_a_text_with_other_bytes_is_learnt_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "my text.txt"
    text.write_bytes(b"Windows line ends\r\n\x00\xff" * 400)
    words = ["train", "modern-gated-lstm", "--hidden-size", 4, "--rows", 2, "--length", 20, "--updates", 3, "--quiet"]
    assert main([str(word) for word in [*words, "--data", text, "--out", tmp_path / "run"]]) == 0
    assert "the model knows all 256" in capsys.readouterr().err
    model = CharLM.from_pretrained(tmp_path / "run")
    assert len(model.vocabulary) == 256
    assert len(model.generate(b"\xff\r", max_new=200, temperature=3.0, seed=1)) == 200
    assert answer(capsys, "eval", tmp_path / "run", "--json")["characters"] == len(text.read_bytes()) // 20


def test_a_run_is_evaluated_on_its_own_text_as_it_was_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "my.txt").write_bytes(b"Windows line ends\r\n" * 400)
    monkeypatch.chdir(tmp_path / "here")
    words = ["train", "modern-gated-lstm", "--hidden-size", 4, "--rows", 2, "--length", 20, "--updates", 3, "--quiet"]
    words += ["--data", "my.txt", "--unknown", "replace", "--out", tmp_path / "run"]
    assert main([str(word) for word in words]) == 0
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert answer(capsys, "eval", tmp_path / "run", "--json")["unknown_replaced"] == 20
    assert answer(capsys, "eval", tmp_path / "run", "--data", "here/my.txt", "--json")["unknown_replaced"] == 20
    (tmp_path / "other.txt").write_bytes(b"Windows line ends\r\n" * 300)
    code, error = refused(capsys, "eval", tmp_path / "run", "--data", "other.txt")
    assert code == 3
    assert "0x0d" in error
    (tmp_path / "here" / "my.txt").unlink()
    code, error = refused(capsys, "eval", tmp_path / "run")
    assert code == 3
    assert f"{tmp_path}/here/my.txt does not exist ({tmp_path}/run was trained on it" in error


def test_a_text_too_short_for_validation_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"ten bytes " * 3)
    with pytest.raises(DataError, match="30 bytes leave too few for validation"):
        train(tiny(tmp_path, rows=2, length=3), tmp_path / "run")


def test_replaced_bytes_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = CharLM(hidden_size=4, num_layers=1)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "prompt").write_bytes(b"a\xffb\x00")
    words = ["generate", tmp_path / "model", "--prompt-file", tmp_path / "prompt", "--chars", 3]
    assert main([str(word) for word in [*words, "--unknown", "replace", "--json"]]) == 0
    out, error = capsys.readouterr()
    assert error == "2 bytes of the prompt are outside the vocabulary and read as '?'\n"
    assert json.loads(out)[0]["unknown_replaced"] == 2
    with pytest.warns(UserWarning, match="2 bytes outside the vocabulary"):
        assert len(model.score(b"a\xffb\x00", unknown="replace")) == 4
    model.score(b"all known", unknown="replace")  # warnings are errors here


def test_a_damaged_unpacked_copy_is_made_again(tmp_path: Path) -> None:
    content = corpus.excerpt().bytes[:3000].tobytes()
    (tmp_path / "my.gz").write_bytes(gzip.compress(content))
    corpus.load(tmp_path / "my.gz")
    (kept,) = (tmp_path / "cache" / "unpacked").iterdir()
    for damage in (content[:100], b"", content[:-1] + b"!"):
        kept.write_bytes(damage)
        assert corpus.load(tmp_path / "my.gz").bytes.tobytes() == content


def test_the_environment_is_named_and_knows_the_excerpt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GFRNN_DATA", "/nowhere")
    code, error = refused(capsys, "data")
    assert code == 3
    assert "GFRNN_DATA: /nowhere does not exist" in error
    monkeypatch.setenv("GFRNN_DATA", "excerpt")
    assert main(["data"]) == 0
    assert "no enwik8 found" not in capsys.readouterr().out
    monkeypatch.delenv("GFRNN_DATA")
    assert main(["data"]) == 0
    assert "no enwik8 found" in capsys.readouterr().out


def test_a_download_that_is_there_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source.zip"
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("enwik8", b"stands for enwik8")
    monkeypatch.setattr(corpus, "ENWIK8_SHA1", hashlib.sha1(b"stands for enwik8").hexdigest())
    told: list[float] = []
    corpus.download(source.as_uri(), told.append)
    assert told == [1.0]
    corpus.download(source.as_uri(), told.append)
    assert told == [1.0]
    (tmp_path / "cache" / "enwik8.zip").write_bytes(b"damaged")
    corpus.download(source.as_uri(), told.append)
    assert told == [1.0, 1.0]


@pytest.mark.parametrize("place", ["version", "encrypted", "directory"])
def test_an_archive_that_is_damaged_anywhere_is_named_and_fetched_again(tmp_path: Path, place: str) -> None:
    path = tmp_path / "my.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text", b"some words " * 500)
    whole = bytearray(path.read_bytes())
    entry, end = whole.rindex(b"PK\1\2"), whole.rindex(b"PK\5\6")
    at, value = {"version": (entry + 6, 255), "encrypted": (entry + 8, 1), "directory": (end + 17, 255)}[place]
    whole[at] |= value
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"my\.zip is damaged"):
        corpus.load(path)
    with pytest.raises(DataError, match="the download is damaged"):
        corpus.check_archive(path)


def test_preemption_outside_of_training_is_75_too() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted, match="SIGTERM") as stopped, leaving_at_once():
        signal.raise_signal(signal.SIGTERM)
    assert stopped.value.exit_code == 75
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("whole", [False, True])
def test_preemption_in_the_last_validation_is_75(whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TextTask.validate

    def stopped(self: TextTask, model: CharLM, full: bool, *rest: object) -> dict[str, float]:
        metrics = real(self, model, full, *rest)  # type: ignore[arg-type]
        if full is whole:
            signal.raise_signal(signal.SIGTERM)
        return metrics

    monkeypatch.setattr(TextTask, "validate", stopped)
    with pytest.raises(Preempted):
        run_tiny(tmp_path, validate_chars=500, validate_every=1000)
    monkeypatch.undo()
    assert run_tiny(tmp_path, validate_chars=500, validate_every=1000)["already_done"]


def test_preemption_while_torch_is_imported_is_75(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def importing(threads: int | None) -> None:
        with contextlib.suppress(Exception):  # as some modules do around what they can do without
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(train_verb, "set_threads", importing)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # or a failure would end all tests
    try:
        code, error = refused(capsys, *tiny_words(tmp_path), "--out", tmp_path / "run")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code == 75
    assert "SIGTERM" in error
    assert not (tmp_path / "run").exists()


def test_two_columns_fit_the_narrowest_terminal() -> None:
    assert "|" in side_by_side(("a", "b"), ("some words", "others"), generate_verb.NARROWEST)


def test_paper_numbers_are_for_the_whole_of_enwik8_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = corpus.Corpus("enwik8", np.frombuffer(corpus.excerpt().bytes[:20_000], dtype=np.uint8), is_enwik8=True)
    run_tiny(tmp_path)
    assert "paper_bpc" not in answer(capsys, "eval", tmp_path / "run", "--json")
    monkeypatch.setattr(corpus, "load", lambda path=None: text)
    assert answer(capsys, "eval", tmp_path / "run", "--json")["paper_bpc"] == 1.842
    assert "paper_bpc" not in answer(capsys, "eval", tmp_path / "run", "--split", "valid", "--json")


def test_the_model_in_the_package(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = Path(corpus.__file__).parents[1] / "pretrained"
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 6_000_000
    model = CharLM.from_pretrained("gf-lstm-enwik8")
    assert (model.layer.unit, model.layer.wiring) == ("lstm", "gated")
    words = corpus.excerpt().bytes[:5000].tobytes()
    assert 1 < model.score(words).mean() < 3
    (tmp_path / "some.txt").write_bytes(words)
    report = answer(capsys, "eval", "--data", tmp_path / "some.txt", "--json")
    assert report["bpc"] == pytest.approx(model.score(words).mean(), abs=1e-3)
    (sample,) = answer(capsys, "generate", "--prompt", "== History ==", "--chars", 20, "--seed", 1, "--json")
    assert sample["text"].encode() == model.generate("== History ==", 20, seed=1)


def test_help_says_how_an_option_is_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "modern-gated-lstm", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "[1.0, null: none]" in shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_while_a_module_is_imported_ends_the_process(number: int, code: int, tmp_path: Path) -> None:
    """Modules catch what is raised in them, and would go on half made."""
    (tmp_path / "careless.py").write_text(
        "import time\nprint('importing', flush=True)\ntry:\n    time.sleep(60)\nexcept BaseException:\n    pass\n"
    )
    script = (
        "from gfrnn.training.signals import ctrl_c, leaving_at_once\n"
        "with ctrl_c(), leaving_at_once():\n"
        "    import careless\n"
        "print('survived')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "importing\n"
        process.send_signal(number)
        out, error = process.communicate(timeout=50)
    assert (process.returncode, out) == (code, "")
    assert error.startswith("gfrnn: ") and len(error.splitlines()) == 1


def test_ctrl_c_between_imports_is_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), ctrl_c():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("verb", [["recipes"], ["programs", "--count", "1"]])
def test_a_closed_standard_output_is_no_defect(verb: list[str]) -> None:
    words = ["sh", "-c", 'exec "$0" -m gfrnn "$@" >&-', sys.executable, *verb]
    result = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_refused_training_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").touch()
    words = [*tiny_words(tmp_path)]
    words[words.index("--data") + 1] = str(tmp_path / "empty.txt")
    code, _ = refused(capsys, *words, "--out", tmp_path / "run")
    assert code == 3
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    assert refused(capsys, *words, "--out", tmp_path / "mine")[0] == 3
    assert (tmp_path / "mine").exists()  # somebody made it
