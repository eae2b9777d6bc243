"""A campaign's plan, the state of each of its runs, and how long the rest will take."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from campaigns import OPTIONS, make_finished, tiny_plan

from gfrnn.campaign import estimate
from gfrnn.campaign.plan import ROWS, Budget, Planned, chosen, plan, recipe_of
from gfrnn.campaign.runs import locked, look
from gfrnn.cli.evaluate import main as evaluate
from gfrnn.cli.train import parse_train
from gfrnn.errors import UsageError
from gfrnn.ops.doctor import cpu_name
from gfrnn.recipes import find, load
from gfrnn.storage.run_folder import blocks_name
from gfrnn.training.checkpoint import lock
from gfrnn.training.run import train


@pytest.mark.parametrize(
    ("text", "budget", "name"),
    [
        ("1 epoch", Budget(epochs=1.0), "1epoch"),
        ("0.5epochs", Budget(epochs=0.5), "0.5epochs"),
        ("1.23456789 epochs", Budget(epochs=1.23456789), "1.23456789epochs"),
        ("10M", Budget(chars=10_000_000), "10M"),
        ("10m chars", Budget(chars=10_000_000), "10M"),
        ("1.5 k", Budget(chars=1500), "1500chars"),
        ("12345 characters", Budget(chars=12345), "12345chars"),
    ],
)
def test_a_budget_comes_back_from_its_name_and_its_options(text: str, budget: Budget, name: str) -> None:
    assert Budget.parse(text) == budget
    assert str(budget) == name
    assert Budget.parse(name) == budget
    config, _, _ = parse_train(["modern-gated-lstm", *budget.words])
    assert config.run == find("modern-gated-lstm").config.replace(**budget.limits).run


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "epochs or characters, like"),
        ("long", "epochs or characters, like"),
        ("500", "epochs or characters, like"),
        ("-1 epoch", "epochs or characters, like"),
        ("1e9 epochs", "epochs or characters, like"),
        ("9" * 400 + "M", "epochs or characters, like"),
        ("0 epochs", "more than nothing"),
        ("0.0001 chars", "more than nothing"),
        ("1k epochs", "a plain number"),
        ("20000 epochs", "at most"),
        ("999999G", "at most"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Budget.parse(text)


def test_every_row_has_a_recipe_in_both_settings_with_a_budget_of_epochs() -> None:
    for row in {row for rows in ROWS.values() for row in rows}:
        for settings in ("modern", "paper"):
            assert recipe_of(row, settings).config.run.epochs
    assert {run.recipe for run in plan(["table2"], "paper")} == {
        name for name in load() if name.startswith("hutter-") and name != "hutter-large"
    }


def test_a_plan_has_every_run_once_and_the_first_seed_first() -> None:
    runs = plan(["curves", "text", "ablation"], seeds=(3, 1))
    assert len({run.name for run in runs}) == len(runs) == 14
    assert [run.seed for run in runs] == [3] * 7 + [1] * 7
    assert runs[0].name == "modern-stacked-gru-1epoch-seed3"
    assert plan(["table1"]) == []


def test_only_some_rows_or_a_unit() -> None:
    table = [run.recipe for run in plan(["table2"])]
    some = [run.recipe for run in plan(["table2"], only=("gru", "gated-lstm"), seeds=(1, 2))]
    wanted = [name for name in table if name.endswith("-gru") or name == "modern-gated-lstm"]
    assert some == wanted * 2 and len(wanted) == 6
    own = {"lstm": {"keep": 5}}  # says nothing of the rows that are left, and is no mistake
    assert [run.options for run in plan(["table2"], only=("gru",), own_options=own)] == [()] * 5


def test_what_takes_weeks_is_asked_for_by_name() -> None:
    large = "hutter-large"
    assert large not in {run.recipe for run in plan([])}
    assert large not in {run.recipe for run in plan(["all"])}
    assert large in {run.recipe for run in plan(["all", "table3"])}
    assert chosen([]) == chosen(["all"])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"whats": ["tabel2"]}, "'tabel2' is none of .*; did you mean 'table2'"),
        ({"whats": ["text"], "settings": "old"}, "settings are modern or paper"),
        ({"whats": ["text"], "seeds": (1, 2, 1)}, "seed 1 is asked for twice"),
        ({"whats": ["text"], "seeds": (-1,)}, "seed must be at least 0"),
        ({"whats": ["text"], "seeds": (2**32,)}, "seed is too large"),
        ({"whats": ["text"], "options": {"hiden_size": 3}}, "option 'hiden_size' to set; did you mean 'hidden_size'"),
        ({"whats": ["text"], "options": {"programs": 3}}, "option 'programs'"),
        ({"whats": ["text"], "options": {"epochs": 3}}, "option 'epochs'"),
        ({"whats": ["text"], "options": {"hidden_size": 0}}, "hidden_size must be at least 1"),
        ({"whats": ["text"], "only": ("gatd-lstm",)}, "'gatd-lstm' is neither a row nor a unit .*'gated-lstm'"),
        ({"whats": ["text"], "only": ("gated-gru",)}, "'gated-gru' is neither a row nor a unit of this campaign"),
        ({"whats": ["table1"], "only": ("lstm",)}, "'lstm' is neither a row nor a unit of this campaign"),
        ({"whats": ["text"], "own_options": {"lstn": {"keep": 1}}}, "'lstn' is neither a row nor a unit .*'lstm'"),
        ({"whats": ["text"], "own_options": {"lstm": {"keeep": 1}}}, "option 'keeep' to set; did you mean 'keep'"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        plan(**arguments)


def test_the_line_of_a_run_means_the_planned_configuration() -> None:
    options = {"data": "/a b/it's.txt", "hidden_size": 7, "clip": None, "input_skip": True, "programs": 99}
    for run in plan(["all"], "modern", (1, 2), Budget.parse("2.5 epochs"), options):
        words = shlex.split(run.line(Path("runs/my campaign")))
        between = words.index("&&")
        assert words[:2] == ["gfrnn", "train"]
        config, _, args = parse_train(words[2:between])
        assert config == run.config
        assert args.out == Path("runs/my campaign") / run.name
        assert words[between + 1 : between + 4] == ["gfrnn", "eval", str(args.out)]
        assert ("--split" in words) == run.is_text
        assert ("programs" in dict(run.options)) == (not run.is_text)


def test_options_of_a_row_go_before_those_of_its_unit_and_these_before_those_of_all() -> None:
    own = {"gated-gru": {"learning_rate": 3.0}, "gru": {"learning_rate": 2.0, "keep": 5}}
    runs = plan(["curves"], options={"learning_rate": 1.0}, own_options=own)
    found = {run.recipe: (run.config.options["learning_rate"], run.config.options["keep"]) for run in runs}
    assert found["modern-gated-gru"] == (3.0, 5)
    assert found["modern-stacked-gru"] == (2.0, 5)
    assert {found[f"modern-{kind}-lstm"][0] for kind in ("stacked", "gated")} == {1.0}


def test_states_from_missing_to_finished(tmp_path: Path) -> None:
    run = tiny_plan(tmp_path, ["ablation"])[2]
    assert look(tmp_path, run).state == "missing"
    (tmp_path / run.name).mkdir()
    assert look(tmp_path, run).state == "missing"
    with lock(tmp_path / run.name):
        assert look(tmp_path, run).state == "running"
    assert look(tmp_path, run).state == "stopped"
    train(run.config, tmp_path / run.name)
    state = look(tmp_path, run)
    assert state.state == "trained"
    assert (state.updates, state.characters, state.cpu) == (12, 252, cpu_name())
    assert state.rate is not None and state.rate > 0
    assert evaluate([*run.eval_words(tmp_path)[1:], "--quiet"]) == 0
    assert look(tmp_path, run).state == "finished"
    with lock(tmp_path / run.name):
        assert look(tmp_path, run).state == "running"


def test_looking_at_a_lock_never_keeps_anybody_out(tmp_path: Path) -> None:
    """A trainer that starts in the instant in which somebody looks tries again."""
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.03, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        lock(tmp_path).close()
    assert not locked(tmp_path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seed": 2}, "seed is 1, not 2"),
        ({"budget": Budget(chars=253)}, "chars is 252, not 253"),
        ({"budget": Budget(epochs=1.0)}, "epochs is None, not 1.0; chars is 252, not None"),
        ({"recipe": "modern-gated-gru"}, "modern-stacked-lstm, not modern-gated-gru"),
        ({"options": (*OPTIONS.items(), ("learning_rate", 1.0))}, "learning_rate is 0.008, not 1.0"),
    ],
)
def test_another_run_in_the_folder_is_foreign(
    changes: dict[str, Any], why: str, one: tuple[Path, Planned], tmp_path: Path
) -> None:
    run, planned = one
    asked = Planned(**{**vars(planned), **changes})
    run.rename(tmp_path / asked.name)
    state = look(tmp_path, asked)
    assert (state.state, why in state.why) == ("foreign", True), state.why


def test_what_is_no_run_is_foreign(one: tuple[Path, Planned], tmp_path: Path) -> None:
    run, planned = one
    (run / "config.yaml").write_text("task: [")
    assert "cannot be read as a configuration" in look(tmp_path, planned).why
    (run / "config.yaml").unlink()
    assert "has no config.yaml: it is no run folder" in look(tmp_path, planned).why
    shutil.rmtree(run)
    run.write_text("a file")
    assert look(tmp_path, planned).state == "foreign"
    assert "Not a directory" in look(tmp_path, planned).why


def test_a_damaged_log_is_named(one: tuple[Path, Planned], tmp_path: Path) -> None:
    run, planned = one
    (run / "metrics.jsonl").write_bytes(b"garbage\n")
    assert "metrics.jsonl: line 1 is damaged" in look(tmp_path, planned).why


def test_another_text_is_foreign(one: tuple[Path, Planned], tmp_path: Path) -> None:
    planned = one[1]
    sha256, notes = estimate.text_of([planned])
    assert notes == []
    assert look(tmp_path, planned, sha256).state == "finished"
    state = look(tmp_path, planned, "0" * 64)
    assert state.state == "foreign"
    assert str(sha256)[:16] in state.why and "0" * 16 in state.why


def test_what_is_damaged_but_can_be_made_again_is_not_finished(one: tuple[Path, Planned], tmp_path: Path) -> None:
    run, planned = one
    whole = (run / blocks_name("test")).read_bytes()
    (run / blocks_name("test")).write_bytes(whole[:-1])
    assert look(tmp_path, planned).state == "trained"
    (run / blocks_name("test")).write_bytes(whole)
    model = run / "best" / "model.safetensors"
    model.write_bytes(model.read_bytes() + b" ")  # another model than the one that was scored
    assert look(tmp_path, planned).state == "trained"
    shutil.rmtree(run / "best")
    assert look(tmp_path, planned).state == "finished"  # published without its weights
    (run / blocks_name("test")).unlink()
    assert look(tmp_path, planned).state == "stopped"  # `gfrnn train` makes best/ again


def test_a_damaged_last_checkpoint_leaves_the_run_to_the_one_before(one: tuple[Path, Planned], tmp_path: Path) -> None:
    run, planned = one
    assert (run / "LATEST").read_text() == "step-12\n"
    (run / "checkpoints" / "step-12" / "train.json").write_text("{")
    assert look(tmp_path, planned).state == "stopped"


def test_stopped_in_the_last_validation_is_not_done(tmp_path: Path) -> None:
    """The budget is used up, but the best model was not yet validated on the whole split."""
    run = tiny_plan(tmp_path, ["ablation"], validate_chars=300)[0]
    make_finished(tmp_path, run)
    assert look(tmp_path, run).state == "finished"
    log = tmp_path / run.name / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["kind"] == "final"
    log.write_text("".join(lines[:-1]))
    assert look(tmp_path, run).state == "stopped"
    train(run.config, tmp_path / run.name)
    assert look(tmp_path, run).state == "finished"
