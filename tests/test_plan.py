"""What it costs, said beforehand: the list of recipes, the first line of a training, and what to do afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runs import tiny
from test_bar import on_a_terminal
from test_cli import tiny_words

from gfrnn.cli import main
from gfrnn.cli.train import next_steps, shorter
from gfrnn.recipes import find, load
from gfrnn.tasks.text import corpus
from gfrnn.training.plan import expected_seconds
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics

RESULTS = Path(__file__).parents[1] / "results"
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("columns", "shown"), [(80, ["lstm 3x140", "1.30 M", "1.842", "9,000 M", "days"]), (40, ["days"])]
)
def test_the_list_fits_the_terminal(columns: int, shown: list[str]) -> None:
    lines = on_a_terminal(["recipes"], columns)
    assert max(map(len, lines)) <= columns
    assert set(load()) <= {line.split()[0] for line in lines}
    (line,) = [line for line in lines if line.startswith("hutter-gated-lstm ")]
    assert all(words in line for words in shown)
    assert "one core" in " ".join(lines)


def test_a_file_gets_all_of_the_list_and_json_the_same_facts(capsys: Capture) -> None:
    assert main(["recipes"]) == 0
    assert "gated feedback, lstm: one epoch, modern settings" in capsys.readouterr().out
    assert main(["recipes", "--json"]) == 0
    rows = {row["recipe"]: row for row in json.loads(capsys.readouterr().out)}
    text, programs = rows["hutter-gated-lstm"], rows["programs-gated-gru"]
    assert (text["unit"], text["wiring"], text["layers"], text["units"]) == ("lstm", "gated", 3, 140)
    assert (text["characters"], text["programs"]) == (9_000_000_000, None)
    assert (programs["programs"], programs["paper"]) == (9_600_000, None)
    assert 100 < text["hours"] < 500
    assert 10 < programs["hours"] < 50


@pytest.mark.parametrize(
    "run", ["modern-gated-lstm", *(f"programs/programs-{kind}" for kind in ("gated-gru", "gated-lstm", "stacked-lstm"))]
)
def test_the_estimate_is_what_was_measured(run: str) -> None:
    """On one core, to a quarter: models of other sizes, and the two tasks."""
    records = read_metrics(RESULTS / run)
    start, last = records[0], [record for record in records if record["kind"] == "valid"][-1]
    task = find(start["recipe"]).config.task
    guess = expected_seconds(task, start["parameters"], last["characters"])
    assert guess == pytest.approx(last["seconds"], rel=0.25)


def test_the_recipes_characters_are_those_their_tasks_read() -> None:
    task = find("modern-programs-stacked-gru").config.build_task()
    assert find("modern-programs-stacked-gru").characters == pytest.approx(3 * task.epoch * task.characters, rel=0.02)
    assert find("modern-gated-lstm").characters == corpus.ENWIK8_BYTES * 0.9


class Listener:
    """A progress that writes down what stays."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, title: str) -> Any:
        from gfrnn.progress import Progress

        listener = self

        class Listening(Progress):
            def say(self, sentence: str) -> None:
                listener.said.append(sentence)

        return Listening(title)


def test_a_training_begins_with_what_it_will_do(tmp_path: Path) -> None:
    heard = Listener()
    config = tiny(tmp_path, precision="float32")
    train(config, tmp_path / "run", shorter="a shorter one", progress=heard)
    first = heard.said[0]
    assert first.startswith("modern-gated-lstm: gated lstm 2x6, ")
    assert f"on {config.options['data']}, products in float32: 12 updates, 252 characters, about " in first
    assert "shorter" not in first  # seconds need no advice
    heard = Listener()
    train(config.replace(updates=None, minutes=0.01), tmp_path / "minutes", progress=heard)
    assert heard.said[0].endswith("text.txt, products in float32, for 1 s")


def test_a_long_training_says_how_to_make_it_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped by the listener as soon as it has heard the plan."""

    class Enough(Exception):
        pass

    class Stopping(Listener):
        def __call__(self, title: str) -> Any:
            progress = super().__call__(title)
            hear = progress.say

            def say(sentence: str) -> None:
                hear(sentence)
                raise Enough

            progress.say = say
            return progress

    heard = Stopping()
    config = find("hutter-gated-lstm").config.replace(data="excerpt", epochs=5000.0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Enough):
        train(config, tmp_path / "run", shorter=shorter("hutter-gated-lstm"), progress=heard)
    assert "1,301,259 parameters, on enwik8 excerpt, products in float32: " in heard.said[0]
    assert " days of updates if one core is as fast as ours" in heard.said[0]
    assert heard.said[0].endswith("(shorter: --minutes 30, or the recipe modern-gated-lstm)")


def test_every_recipe_has_a_shorter_way() -> None:
    assert shorter("programs-gated-gru") == "--minutes 30, or the recipe modern-programs-gated-gru"
    assert {shorter(name) for name in load() if name.startswith("modern-")} == {"--minutes 30"}
    assert shorter("hutter-large") == "--minutes 30"


def test_the_summary_says_what_to_do_next_to_people_only(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "my run"
    assert main([*tiny_words(tmp_path, updates=2), "--out", str(out), "--quiet"]) == 0
    shown = capsys.readouterr().out
    for verb in ("eval", "generate", "plot"):
        assert f"gfrnn {verb} '{out}'" in shown
    assert main([*tiny_words(tmp_path, updates=2), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["already_done"]
    assert "gfrnn run-program runs/x " in next_steps(Path("runs") / "x", "programs")
