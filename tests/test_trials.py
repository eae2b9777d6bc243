"""Lists of trials: what they mean, what they refuse, and the table of what came of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import TINY, run_tiny, write_text
from test_cli import refused

from gfrnn.campaign.plan import Budget
from gfrnn.campaign.runs import RunState, look, progress_of
from gfrnn.campaign.trials import Search, Trial, check_models, read, search_of
from gfrnn.errors import NonFinite, UsageError
from gfrnn.report import tuning
from gfrnn.training.config import BUDGET
from gfrnn.training.runlog import RunLog, read_metrics

ROOT = Path(__file__).parents[1]
LISTS = sorted((ROOT / "results/recipe").glob("*.yaml"))
GATED = {"gated": "modern-gated-lstm"}


def search(names: tuple[str, ...] = (), **values: Any) -> Search:
    return search_of({"recipes": GATED, "budget": "3M", **values}, names, {})


def test_every_recipe_with_every_setting_and_every_seed() -> None:
    found = search(
        recipes={**GATED, "fb": {"recipe": "modern-stacked-gru", "wiring": "feedback"}},
        seeds=[1, 7],
        options={"keep": 1},
        settings={"usual": {}, "quiet": {"start": "quiet", "only": ["gated"]}, "learning_rate": ["8e-3", 0.016]},
    )
    first = ["gated-usual", "gated-quiet", "gated-8e-3", "gated-1.6e-2", "fb-usual", "fb-8e-3", "fb-1.6e-2"]
    assert [trial.name for trial in found.trials] == [*first, *(f"{name}-seed7" for name in first)]
    options = {trial.name: trial.config.options for trial in found.trials}
    assert {values["chars"] for values in options.values()} == {3_000_000}
    assert {values["keep"] for values in options.values()} == {1}
    assert [options[name]["learning_rate"] for name in first] == [8e-3, 8e-3, 8e-3, 0.016, 4e-3, 8e-3, 0.016]
    assert [options[name]["start"] for name in first[:3]] == ["paper", "quiet", "paper"]
    assert (options["fb-usual"]["wiring"], options["fb-usual-seed7"]["seed"]) == ("feedback", 7)
    only = search(("gated",), recipes={**GATED, "other": "modern-gated-gru"})
    assert [trial.name for trial in only.trials] == ["gated-usual"]


def test_a_named_setting_may_hold_one_list() -> None:
    found = search(settings={"late": {"schedule": "late", "learning_rate": ["4e-3", "8e-3", "1e-2"]}})
    assert [trial.name for trial in found.trials] == ["gated-late-4e-3", "gated-late-8e-3", "gated-late-1e-2"]
    assert {trial.config.optimizer.schedule for trial in found.trials} == {"late"}
    assert [found.is_edge(setting) for setting in found.settings] == [True, False, True]


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ({"learning_rate": [1e-3, 2e-3, 4e-3]}, [True, False, True]),
        ({"learning_rate": [4e-3, 2e-3, 1e-3]}, [True, False, True]),
        ({"learning_rate": [4e-3, 1e-3, 2e-3]}, [False] * 3),
        ({"start": ["paper", "scaled"]}, [False] * 2),
        ({"usual": {}, "momentum": [0.8, 0.95]}, [False, True, True]),
        ({"a": {"momentum": [0.8, 0.9]}, "b": {"momentum": [0.85, 0.95, 0.97]}}, [True, True, True, False, True]),
    ],
)
def test_the_ends_of_an_ordered_list_are_its_edges(values: dict[str, Any], edges: list[bool]) -> None:
    found = search(settings=values)
    assert [found.is_edge(setting) for setting in found.settings] == edges


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_the_lists_of_the_results_make_sense(path: Path) -> None:
    found = read(path)
    check_models(found.trials)
    assert len(found.trials) > len(found.rows) * len(found.seeds)


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_the_runs_that_are_there_are_those_of_their_list(path: Path) -> None:
    found = {trial.name: trial for trial in read(path).trials}
    folder = path.with_suffix("")
    there = [run.name for run in folder.iterdir()] if folder.exists() else []
    assert there or path.stem not in ("learning-rates", "learning-rates-gru")
    assert {look(folder, found[name]).state for name in there} <= {"finished"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"recipies": {}}, "unknown key 'recipies'; did you mean 'recipes'?"),
        ({"recipes": {}}, "recipes must be a mapping of names"),
        ({"recipes": {"g": "modern-gated-lsmt"}}, "did you mean 'modern-gated-lstm'?"),
        ({"recipes": {"g": {"start": "quiet"}}}, "recipes: g names no recipe"),
        ({"recipes": {"p": "modern-programs-gated-lstm"}}, "modern-programs-gated-lstm reads no text"),
        ({"recipes": {"a/b": "modern-gated-lstm"}}, "'a/b' cannot be part of a folder's name"),
        ({"settings": {"x": {"lerning_rate": 1}}}, "gated with x: gfrnn train has no option 'lerning_rate'; did you"),
        ({"settings": {"x": {"start": "quite"}}}, "start must be one of paper, scaled, quiet, stack, got 'quite'; did"),
        ({"settings": {"x": {"learning_rate": "fast"}}}, "learning_rate must be of type float, got 'fast'"),
        ({"settings": {"learning_rate": [1e-3, -1]}}, "gated with -1"),
        ({"settings": {"learning_rate": [1e-3, 0]}}, "gated with 0: learning_rate must be greater than 0"),
        ({"settings": {"x": {"chars": 5}}}, "gated with x: chars: budget says that"),
        ({"settings": {"x": {"data": "t"}}}, "data: --data says that"),
        ({"options": {"seed": 2}}, "seed: seeds says that"),
        ({"settings": {"x": {"momentum": [0.1], "decay": [0.2]}}}, "only one option may have a list of values"),
        ({"settings": {"momentum": [0.9], "decay": [0.9]}}, "two are called 0.9"),
        ({"settings": {"x": {"only": ["gatde"]}}}, "no recipe is called 'gatde'; did you mean 'gated'?"),
        ({"settings": {"x": {"only": "gated"}}}, "only must be a list"),
        ({"settings": {"x": 3}}, "settings: x must be a mapping"),
        ({"settings": {"x": {"momentum": []}}}, "no run is left"),
        ({"seeds": [1, 1]}, "seed 1 is asked for twice"),
        ({"seeds": "1"}, "seeds must be a list of whole numbers"),
        ({"budget": "much"}, "a budget is epochs or characters"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as raised:
        search(**values)
    assert why in str(raised.value) or (why == "gated with -1" and "'-1' cannot be part" in str(raised.value))


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"start": "scaled"}, "stack with x: start='scaled': with wiring 'stacked' no layer hears another's past"),
        ({"gate_learning_rate": 2}, "stack with x: gate_learning_rate 2: the model has no global reset gates"),
    ],
)
def test_what_only_the_model_can_refuse_is_refused_before_anything_is_trained(
    setting: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"recipes": {"stack": "modern-stacked-lstm"}, "settings": {"x": setting}}
    path = tmp_path / "list.yaml"
    path.write_text(yaml.safe_dump(asked))
    code, sentence = refused(capsys, "tune", str(path), "--out", str(tmp_path / "c"), "--data", write_text(tmp_path))
    assert (code, why in sentence) == (2, True), sentence
    assert not (tmp_path / "c").exists()


def test_a_file_that_is_no_list_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, sentence = refused(capsys, "tune", str(tmp_path / "none.yaml"))
    assert (code, "none.yaml cannot be read" in sentence) == (3, True)
    for content, why in (("{", "is no list of trials"), ("- 1", "a list of trials is a mapping with the keys budget")):
        (tmp_path / "list.yaml").write_text(content)
        code, sentence = refused(capsys, "tune", str(tmp_path / "list.yaml"))
        assert (code, why in sentence, "list.yaml" in sentence) == (2, True, True), sentence


def test_training_that_meets_nan_is_a_result_of_a_search(tmp_path: Path) -> None:
    shared = {"schedule": "constant", "clip": None, "warmup": 0, "ema": 0.0, "checkpoint_every": 1}
    with pytest.raises(NonFinite) as raised:
        run_tiny(tmp_path, "gated-high", learning_rate=3e38, **shared)
    last = json.loads((tmp_path / "gated-high" / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["why"]) == ("diverged", str(raised.value))
    options = {**TINY, **shared, "learning_rate": 3e38}
    options = {key: value for key, value in options.items() if key not in BUDGET}
    trial = Trial("modern-gated-lstm", 1, Budget(chars=252), tuple(options.items()), "gated", "high")
    config = tmp_path / "gated-high" / "config.yaml"
    config.write_text(config.read_text().replace("updates: 12", "updates: null").replace("chars: null", "chars: 252"))
    assert look(tmp_path, trial) == RunState(tmp_path / "gated-high", "diverged", str(raised.value), **there(tmp_path))
    log = RunLog(tmp_path / "gated-high")
    log.write("resume", 0)  # somebody tries again
    log.close()
    assert look(tmp_path, trial).state == "stopped"


def there(folder: Path) -> dict[str, Any]:
    run = folder / "gated-high"
    return progress_of(run, read_metrics(run))


def made(folder: Path, **found: Any) -> dict[str, RunState]:
    """States of runs, by name: a number is what a finished one came to, a word a state."""
    states = {}
    for name, value in found.items():
        run = folder / name
        run.mkdir()
        if isinstance(value, float):
            records = [{"kind": "valid", "step": 1, "bpc": 1.0}, {"kind": "final", "step": 2, "bpc": value}]
            (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        states[name] = RunState(run, "finished" if isinstance(value, float) else value)
    return states


RATES = {"learning_rate": [1e-3, 2e-3, 4e-3]}


def test_the_table_says_what_is_best_and_whether_at_the_edge(tmp_path: Path) -> None:
    found = search(recipes={"a": "modern-gated-lstm", "b": "modern-gated-gru"}, settings=RATES)
    names = ("a-1e-3", "a-2e-3", "a-4e-3", "b-1e-3", "b-2e-3", "b-4e-3")
    states = made(tmp_path, **dict(zip(names, (2.5, 2.25, "missing", 2.125, 9.0, "diverged"), strict=True)))
    cells = tuning.cells(found, states)
    assert [cell.words() for cell in cells] == [
        *("2.500 +0.250", "2.250 best", "missing"),
        *("2.125 best, at the edge", "diverged", "diverged"),
    ]
    lines = tuning.lines_of(found, cells)
    assert lines[0] == "Validation BPC after 3 M characters, seed 1; difference from the recipe's best"
    assert lines[2:6] == ["a (modern-gated-lstm)", "  1e-3  2.500 +0.250", "  2e-3  2.250 best", "  4e-3  missing"]
    assert lines[-3:] == ["the best of each", "  b  2.125 (1e-3)", "  a  2.250 +0.125 (2e-3)"]
    assert max(map(len, lines[1:])) <= 40
    table = tuning.markdown_of(found, cells).splitlines()
    assert table[2:6] == [
        "| | 1e-3 | 2e-3 | 4e-3 |",
        "|---|---|---|---|",
        "| a | 2.500 +0.250 | **2.250** | missing |",
        "| b | **2.125** at the edge | diverged | diverged |",
    ]


def test_seeds_are_paired_and_the_best_has_as_many_as_any(tmp_path: Path) -> None:
    found = search(recipes={"a": "modern-gated-lstm"}, settings=RATES, seeds=[1, 2])
    names = ("a-1e-3", "a-1e-3-seed2", "a-2e-3", "a-2e-3-seed2", "a-4e-3", "a-4e-3-seed2")
    states = made(tmp_path, **dict(zip(names, (2.0, 3.0, 2.1, 3.2, 1.5, "running"), strict=True)))
    first, second, third = tuning.cells(found, states)
    assert (first.is_best, first.mean, third.is_best) == (True, 2.5, False)
    assert second.difference is not None and second.mean == pytest.approx(2.65)
    assert second.difference.value == pytest.approx(0.15)
    # Student's t for one degree of freedom is 12.706; the differences 0.1 and 0.2 have a standard error of 0.05.
    assert (second.difference.low, second.difference.high) == pytest.approx((0.15 - 0.6353, 0.15 + 0.6353), abs=1e-4)
    assert second.words() == "2.650 +0.150 [-0.485, +0.785]"
    assert third.words() == "1.500 -0.500 (1 of 2 seeds)"
    told = third.as_json()
    assert (told["bpc"], told["interval"], told["unfinished"]) == (1.5, None, {"2": "running"})
    assert "95 % t interval over pairs" in tuning.title(found)


def test_a_setting_that_diverged_once_is_not_the_best(tmp_path: Path) -> None:
    found = search(recipes={"a": "modern-gated-lstm"}, settings={"learning_rate": [1e-3, 2e-3]}, seeds=[1, 2])
    states = made(tmp_path, **{"a-1e-3": 2.0, "a-1e-3-seed2": "missing", "a-2e-3": 1.0, "a-2e-3-seed2": "diverged"})
    first, second = tuning.cells(found, states)
    assert (first.is_best, second.words()) == (True, "1.000 -1.000 (1 of 2 seeds diverged)")
