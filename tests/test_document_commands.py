"""Every command line of the documents means something: it is parsed by its verb, and run wherever that is quick."""

from __future__ import annotations

import glob
import io
import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn

import documents
import pytest
from documents import ROOT, Command
from runs import write_text

from gfrnn import cli
from gfrnn.cli.options import Parser
from gfrnn.recipes import load

EVERY = [command for path in documents.DOCUMENTS for command in documents.commands(documents.read(path))]
COMMANDS = list({command.words: command for command in reversed(EVERY)}.values())[::-1]
every_command = pytest.mark.parametrize("command", COMMANDS, ids=str)

# What stands for anything of its kind in a document; each is replaced by one of that kind.
RECIPE, TEXT_RUN = "modern-gated-lstm", "runs/text"
ANY = {"RECIPE": RECIPE, "VERB": "doctor", "N": "100000"}
ANY |= dict.fromkeys(("RUN", "RUN2", "RUN_A", "RUN_B", "MODEL"), TEXT_RUN)
# What a verb cannot do without, where a sentence names it without.
NEEDS = {"train": (RECIPE,), "launch": ("train", RECIPE), "plot": (TEXT_RUN,), "run-program": (TEXT_RUN,)}
NEEDS["tune"] = ("results/recipe/learning-rates.yaml",)

# Verbs that are not run here, and where they are.
ONLY_PARSED = {
    "launch": "starts torchrun and processes, for half a minute: tests/test_distributed.py",
    "bench": "measures for a minute and more: tests/test_bench.py, tests/test_bench_distributed.py",
    "report": "runs models and draws, for a minute: tests/test_report.py",
    "tune": "trains for hours: tests/test_tune.py",
    "reproduce": "trains for days, or measures how many: tests/test_reproduce.py",
    "completion": "needs shtab: tests/test_completion.py",
    "plot of heat maps": "draws for seconds: tests/test_heatmap.py, and of the runs that are here tests/test_report.py",
    "eval of programs": "evaluates 10,000 programs at least: tests/test_evaluate_programs.py",
}
# What makes a training quick, whatever else its line says.
TINY = {
    "hutter": "--rows 2 --length 5 --hidden-size 4 --updates 2 --validate-every 1 --validate-chars 50",
    "programs": "--rows 2 --hidden-size 4 --updates 2 --programs 50 --pool 2 --validate-programs 5",
}


def filled(command: Command) -> list[str]:
    """The words, with something of its kind for everything that stands for any."""
    words = [ANY.get(word, one_of(word)) for word in command.words]
    verb, rest = words[0], words[1:]
    needs = NEEDS.get(verb, ()) if not rest or (rest[0].startswith("-") and "train" not in rest) else ()
    return [verb, *needs, *rest]


def one_of(word: str) -> str:
    """A recipe whose name begins so, for a word like hutter-...; any other word as it is."""
    return next(name for name in load() if name.startswith(word[:-3])) if word.endswith("-...") else word


class Parsed(BaseException):
    """The command line was understood; what it asks for is not done."""


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> NoReturn:
        raise Parsed

    parse = Parser.parse_args

    def parse_and_stop(parser: Parser, *args: Any) -> Any:
        found = parse(parser, *args)
        # These two look at what they were given before they begin.
        return found if parser.prog in ("gfrnn train", "gfrnn launch") else stop()

    monkeypatch.setattr(Parser, "parse_args", parse_and_stop)
    monkeypatch.setattr("gfrnn.training.run.train", stop)
    monkeypatch.setattr("gfrnn.cli.launch.watch", stop)
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: None)


@every_command
def test_it_is_understood(command: Command, only_parsed: None) -> None:
    words = filled(command)
    with pytest.raises(SystemExit if "--help" in words else Parsed):
        cli.run(words)


def test_what_is_not_understood_is_seen(only_parsed: None) -> None:
    for line in (
        "gfrnn trian",
        "gfrnn train no-such-recipe",
        "gfrnn eval --spilt test",
        "gfrnn launch train RECIPE --rows x",
    ):
        ((words, _),) = documents.commands_in(line)
        with pytest.raises(ValueError):
            cli.run(filled(Command("", words)))


@every_command
def test_the_files_it_names_are_there(command: Command) -> None:
    for word in command.words:
        if word.startswith(("results/", "docs/", "src/", "tests/")):
            assert files(word) or glob.glob(f"{ROOT / word}.*"), word  # those that --out names have a suffix


def files(pattern: str) -> list[str]:
    return sorted(glob.glob(f"{ROOT}/{pattern}"))


def why_only_parsed(command: Command) -> str | None:
    """Which entry of ONLY_PARSED it is, if any."""
    words = filled(command)
    if words[0] in ONLY_PARSED and "--help" not in words:
        return words[0]
    if "--heatmap" in words:
        return "plot of heat maps"
    of_programs = "programs" in command.document or any("programs" in word for word in words)
    return "eval of programs" if words[0] == "eval" and of_programs else None


def test_what_is_only_parsed_is_listed_and_nothing_else_is() -> None:
    reasons = [why_only_parsed(command) for command in COMMANDS]
    assert set(reasons) - {None} == set(ONLY_PARSED)
    assert reasons.count(None) > 2 * len(reasons) / 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the documents' paths stand for here: a text, a run, a program model, and a grid that was evaluated."""
    folder = tmp_path_factory.mktemp("documents")
    text = write_text(folder)
    for name, recipe, more in (("text", RECIPE, ["--data", text]), ("programs", "programs-gated-lstm", [])):
        tiny = TINY["hutter" if name == "text" else "programs"].split()
        assert cli.main(["train", recipe, *tiny, *more, "--out", str(folder / name), "--quiet"]) == 0
    return {"text": text, "run": str(folder / "text"), "programs": str(folder / "programs")}


def made_quick(command: Command, trained: dict[str, str], folder: Path) -> list[str]:
    """The words with what is here for what is elsewhere, and with less to do."""
    verb, *rest = filled(command)
    if "--out" in rest:
        place = rest.index("--out")
        del rest[place : place + 2]
    words: list[str] = []
    for word in rest:
        if word.startswith("results/"):
            words += files(word)
        elif word.startswith(("runs/", "/shared/runs/")):
            words.append(trained["programs" if verb == "run-program" else "run"])
        else:
            words.append(trained["text"] if word == "enwik8" else word)
    if verb == "train":
        task = load()[words[0]].config.task
        quick = TINY[task].replace("--hidden-size 4", "") if "--init" in words else TINY[task]  # the model's size stays
        words += [*quick.split(), "--out", str(folder / "run"), "--quiet"]
        words += ["--data", trained["text"]] if task == "hutter" else []
        words += ["--updates", "4"] if "--extend" in words else []
    elif verb == "eval":
        words += ["--data", trained["text"]]
        if "--dynamic" in words:
            # Without a look at the training text, and chosen quickly, or given where an earlier command has chosen.
            words += ["--rule", "sgd", "--limit", "60"]
            words += [] if {"--choose", "--learning-rate"} & set(words) else ["--learning-rate", "0.1"]
    elif verb == "generate":
        words += ["--chars", "20"]
    elif verb == "export" and "--help" not in words:
        words = words if trained["run"] in words else [trained["run"], *words]
        words = words if "--format" in words else [*words, "--format", "onnx"]  # as it is unasked
    elif verb == "programs":
        words += ["--count", "20"]
    elif verb == "plot":
        words = [*dict.fromkeys(words), "--out", str(folder / "out")]
    return [verb, *words]


def quick() -> list[Command]:
    """Of those that come to the same thing, the first."""
    here = dict.fromkeys(("text", "run", "programs"), "here")
    found = {tuple(made_quick(c, here, Path("out"))): c for c in reversed(COMMANDS) if why_only_parsed(c) is None}
    return list(found.values())[::-1]


@pytest.mark.parametrize("command", quick(), ids=str)
def test_it_does_what_it_says(
    command: Command,
    trained: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GFRNN_DATA", raising=False)
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(command.given.encode())))
    words = made_quick(command, trained, tmp_path)
    if "--extend" in words:
        shutil.copytree(trained["run"], tmp_path / "run")
    code = cli.main(words)
    out, error = capfd.readouterr()
    assert code == 0, f"gfrnn {' '.join(words)}: {error}"
    assert out.strip()
    if words[0] == "plot":
        assert (tmp_path / "out.png").stat().st_size > 1000
