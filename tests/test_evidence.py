"""What a report is made of: which runs count, under which name, and what is left out and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reports import write_programs, write_run

from gfrnn.campaign.plan import ROWS
from gfrnn.errors import DataError
from gfrnn.report.document import Table
from gfrnn.report.evidence import TRIAL, Evidence, collect
from gfrnn.report.tables import table2, table_of

SEARCH = "a search for settings, not a comparison of architectures"
RESULTS = Path(__file__).parents[1] / "results"


def reasons(evidence: Evidence) -> dict[str, str]:
    return {folder.name: why for folder, why in evidence.left_out}


def test_runs_are_found_and_named_by_row_settings_budget_and_seed(tmp_path: Path) -> None:
    write_run(tmp_path / "c/one", "modern-gated-lstm", 2, 1.8)
    write_run(tmp_path / "c/deep/er/two", "hutter-stacked-lstm", epochs=None, chars=10_000_000)
    write_run(tmp_path / "c/deep/er/three", "hutter-gated-lstm", epochs=None, chars=10_000_000)
    (tmp_path / "c/notes.txt").touch()
    evidence = collect([tmp_path / "c"])
    found = {evidence.name(run.folder): (run.row, run.group, run.seed) for run in evidence.runs}
    assert found == {
        "one": ("gated-lstm", ("modern", "1epoch"), 2),
        "deep/er/two": ("stacked-lstm", ("paper", "10M"), 1),
        "deep/er/three": ("gated-lstm", ("paper", "10M"), 1),
    }
    assert evidence.left_out == ()
    one = evidence.of("gated-lstm", ("modern", "1epoch"))[2]
    assert one.test_bpc == pytest.approx(1.8)
    assert (one.seconds, one.characters, one.parameters) == (180.0, 3_000_000, 1_302_939)


def test_an_option_that_is_not_the_recipes_makes_another_group(tmp_path: Path) -> None:
    for row in ("stacked", "gated"):
        write_run(tmp_path / f"{row}-fast", f"modern-{row}-lstm", learning_rate=9e-3)
        write_run(tmp_path / row, f"modern-{row}-lstm", validate_chars=1000, log_every=7, keep=1, unknown="refuse")
    assert collect([tmp_path]).groups == [("modern", "1epoch"), ("modern, learning rate 0.009", "1epoch")]


def test_how_long_a_training_was_is_asked_of_the_rows_in_question(tmp_path: Path) -> None:
    """Epochs of text and of programs have one name, and other lengths."""
    short: dict[str, Any] = {"epochs": None, "chars": 2_000_000}
    write_run(tmp_path / "text", "modern-gated-lstm", curve=(3.0, 2.5, 2.0))
    write_run(tmp_path / "pair", "modern-stacked-lstm", curve=(3.0, 2.5, 2.0))
    write_run(tmp_path / "less", "modern-gated-gru", curve=(3.0, 2.5), **short)
    write_run(tmp_path / "rival", "modern-stacked-gru", curve=(3.0, 2.5), **short)
    write_run(tmp_path / "least", "modern-single-gru", curve=(3.0,))
    evidence = collect([tmp_path])
    epoch, part = ("modern", "1epoch"), ("modern", "2M")
    assert evidence.groups == evidence.groups_of(["gated-lstm"]) == [epoch, part]
    assert evidence.groups_of(["gated-gru", "single-gru"]) == [part, epoch]


def test_rows_with_one_learning_rate_each_are_rivals(tmp_path: Path) -> None:
    short: dict[str, Any] = {"epochs": None, "chars": 3_000_000}
    write_run(tmp_path / "a", "modern-gated-lstm", 1, 1.8, learning_rate=9e-3, **short)
    write_run(tmp_path / "b", "modern-gated-lstm", 2, 1.8, learning_rate=9e-3, **short)
    write_run(tmp_path / "c", "modern-stacked-lstm", 1, 1.9, **short)  # the recipe's own is the best for it
    write_run(tmp_path / "d", "modern-gated-gru", 1, 1.8, learning_rate=5e-3, **short)
    group = ("modern, a learning rate for each row", "3M")
    evidence = collect([tmp_path])
    assert evidence.groups == [group]
    assert sorted(evidence.of("gated-lstm", group)) == [1, 2]
    table = table_of(evidence, group, ["stacked-lstm", "gated-lstm", "gated-gru", "single-gru"])
    assert "Learning rates: stacked-lstm 0.008, gated-lstm 0.009, gated-gru 0.005." in table.caption
    trained = "gfrnn train modern-{} --chars 3000000"
    assert [row[-1] for row in table.rows] == [
        trained.format("stacked-lstm"),
        trained.format("gated-lstm") + " --learning-rate 0.009",
        trained.format("gated-gru") + " --learning-rate 0.005",
        trained.format("single-gru"),
    ]


def test_the_table_with_most_rows_is_the_first_and_has_all_of_them(tmp_path: Path) -> None:
    """Also if others were trained longer. A unit of which only programs were learnt has no rows in the others."""
    short: dict[str, Any] = {"epochs": None, "chars": 3_000_000}
    for row in ("stacked", "gated"):
        write_run(tmp_path / f"{row}-epoch", f"modern-{row}-lstm", curve=(3.0, 2.5, 2.0))
    for row in ("single-lstm", "stacked-lstm", "gated-lstm"):
        write_run(tmp_path / row, f"modern-{row}", curve=(3.0, 2.5), **short)
    write_programs(tmp_path / "programs", "modern-programs-gated-gru", 3)
    first, second = (block for block in table2(collect([tmp_path])) if isinstance(block, Table))
    assert "3 M characters" in first.caption and "1 epoch" in second.caption
    assert len(first.rows) == len(ROWS["table2"])
    assert [row[0].split(",")[0] for row in second.rows] == ["LSTM"] * 6


def test_two_learning_rates_of_a_row_are_two_experiments(tmp_path: Path) -> None:
    short: dict[str, Any] = {"epochs": None, "chars": 3_000_000}
    for row in ("stacked", "gated"):
        write_run(tmp_path / row, f"modern-{row}-lstm", learning_rate=9e-3, **short)
        write_run(tmp_path / f"{row}-own", f"modern-{row}-lstm", **short)
    assert {settings for settings, _ in collect([tmp_path]).groups} == {"modern", "modern, learning rate 0.009"}


def test_a_recipe_as_it_stands_has_no_rival_with_another_learning_rate(tmp_path: Path) -> None:
    write_run(tmp_path / "own", "modern-gated-lstm")
    write_run(tmp_path / "fast", "modern-stacked-lstm", learning_rate=9e-3)
    evidence = collect([tmp_path])
    assert evidence.groups == [("modern", "1epoch")]
    assert reasons(evidence) == {"fast": TRIAL}


def test_a_single_model_with_settings_of_its_own_is_a_trial(tmp_path: Path) -> None:
    write_run(tmp_path / "recipe", "modern-gated-lstm")
    write_run(tmp_path / "fast", "modern-gated-lstm", learning_rate=9e-3)
    write_run(tmp_path / "fast-again", "modern-gated-lstm", seed=2, learning_rate=9e-3)
    write_run(tmp_path / "short", "modern-gated-lstm", epochs=None, minutes=38.0)
    evidence = collect([tmp_path])
    assert [run.folder.name for run in evidence.runs] == ["recipe"]
    assert reasons(evidence) == dict.fromkeys(("fast", "fast-again", "short"), TRIAL)


def test_a_folder_of_trials_says_so_itself(tmp_path: Path) -> None:
    for row in ("stacked", "gated"):
        write_run(tmp_path / "search" / row, f"modern-{row}-lstm", learning_rate=9e-3)
    write_run(tmp_path / "run", "modern-gated-lstm")
    assert len(collect([tmp_path]).runs) == 3
    (tmp_path / "search/trials.txt").write_text("made to\nchoose a rate\n")
    evidence = collect([tmp_path])
    assert [run.folder.name for run in evidence.runs] == ["run"]
    assert reasons(evidence) == {"search": "made to choose a rate"}


def test_what_is_damaged_foreign_unfinished_or_twice_is_named_and_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "a-good", "modern-gated-lstm", 1, 1.8)
    write_run(tmp_path / "b-again", "modern-gated-lstm", 1, 1.9)
    write_run(tmp_path / "c-unfinished", "modern-stacked-lstm", finished=False)
    torn = write_run(tmp_path / "d-blocks", "modern-single-lstm", 1, 1.9) / "blocks-test.safetensors"
    torn.write_bytes(torn.read_bytes()[:-8] + bytes(8))
    (write_run(tmp_path / "e-log", "modern-single-lstm") / "metrics.jsonl").write_text("{}\n{}\n")
    (write_run(tmp_path / "f-test", "modern-single-lstm") / "test.json").write_text('{"split": "valid", "bpc": 1.0}')
    (tmp_path / "g-alone").mkdir()
    (tmp_path / "g-alone" / "metrics.jsonl").touch()
    config = write_run(tmp_path / "h-unknown", "modern-single-lstm") / "config.yaml"
    config.write_text(config.read_text().replace("modern-single-lstm", "mine"))
    (write_run(tmp_path / "i-bomb", "modern-single-lstm") / "env.json").write_text("[" * 100_000)
    evidence = collect([tmp_path])
    assert [run.folder.name for run in evidence.runs] == ["a-good"]
    why = reasons(evidence)
    assert why.pop("b-again") == f"the same row, seed and budget as {tmp_path / 'a-good'}"
    assert why.pop("c-unfinished") == "its training is not finished: it is at update 300"
    for name, word in (
        ("d-blocks", "its numbers are not those"),
        ("e-log", "line 1 is damaged"),
        ("f-test", "is no result of"),
        ("g-alone", "has no config.yaml"),
        ("h-unknown", "unknown recipe 'mine'"),
        ("i-bomb", "recursion"),
    ):
        assert word in why.pop(name)
    assert why == {}


def test_of_repetitions_the_one_that_says_most_is_kept(tmp_path: Path) -> None:
    """Scored before not scored, then exact products before rounded ones, whatever their folders are called."""
    write_run(tmp_path / "a", "modern-gated-lstm", 1, precision="bfloat16")
    write_run(tmp_path / "b", "modern-gated-lstm", 1)
    write_run(tmp_path / "c", "modern-gated-lstm", 1, 1.9, precision="bfloat16")
    write_run(tmp_path / "d", "modern-gated-lstm", 2, precision="bfloat16")
    write_run(tmp_path / "e", "modern-gated-lstm", 2, precision="float32")
    evidence = collect([tmp_path])
    assert [run.folder.name for run in evidence.runs] == ["c", "e"]
    same = "the same row, seed and budget as"
    assert reasons(evidence) == {
        name: f"{same} {tmp_path / kept}" for name, kept in (("a", "c"), ("b", "c"), ("d", "e"))
    }


def test_weights_that_were_not_those_evaluated_are_seen(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "modern-gated-lstm", 1, 1.8)
    (run / "best").mkdir()
    (run / "best" / "model.safetensors").write_bytes(b"other weights")
    assert "evaluated with other weights than it has: `gfrnn eval" in reasons(collect([tmp_path]))["run"]


def test_two_texts_do_not_go_into_one_report(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "modern-gated-lstm", 1, 1.8)
    write_run(tmp_path / "b", "modern-stacked-lstm", 1, 1.8, text="9" * 64)
    with pytest.raises(DataError, match=r"different texts, .*a \(sha256 a{16}\) and .*b \(sha256 9{16}\)"):
        collect([tmp_path])


def test_nor_do_two_sets_of_programs(tmp_path: Path) -> None:
    write_programs(tmp_path / "a", "programs-gated-lstm", 3)
    write_programs(tmp_path / "b", "programs-stacked-lstm", 3, programs="7" * 64)
    with pytest.raises(DataError, match=r"different programs, .*a \(sha256 b{16}\) and .*b \(sha256 7{16}\)"):
        collect([tmp_path])


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        collect([tmp_path / "typo"])


def test_of_the_published_results_the_trials_stay_outside() -> None:
    evidence = collect([RESULTS])
    searches = dict.fromkeys(("modern-ab", "modern-programs-ab", "rates", "recipe"), SEARCH)
    why = reasons(evidence)
    rounded = {name: why.pop(name) for name in list(why) if why[name].startswith("the same row, seed and budget as ")}
    drawn_otherwise = {"hutter-gated-lstm", "hutter-stacked-lstm"}  # from before weights were drawn once, not scored
    assert drawn_otherwise <= set(rounded)
    assert all(
        name in drawn_otherwise or ("-bfloat16" in name and "-float32" in reason) for name, reason in rounded.items()
    )
    assert why == {
        "gf-lstm-38-minutes": TRIAL,
        "programs": "a comparison of precisions, not of architectures",
        **searches,
    }
    assert ("modern, not normalised", "10M") in evidence.groups
