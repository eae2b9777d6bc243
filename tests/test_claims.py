"""The paper's claims: every rule of claims.yaml decides as it says, and says why."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reports import MACHINE, write_programs, write_run

from gfrnn.campaign.plan import recipe_of
from gfrnn.report import grids
from gfrnn.report.claims import document, load_claims, summary
from gfrnn.report.cost import cost_of
from gfrnn.report.evidence import collect
from gfrnn.report.rules import RULES, Verdict
from gfrnn.report.tables import table_of
from gfrnn.report.texts import Texts

ROOT = Path(__file__).parents[1]
CLAIMS = {claim.id: claim for claim in load_claims()}
GROUP = ("modern", "1epoch")


def verdicts(claim: int, folder: Path, texts: Texts | None = None) -> list[Verdict]:
    folder.mkdir(exist_ok=True)
    return CLAIMS[claim].verdicts(collect([folder]), texts)


def only(claim: int, folder: Path, texts: Texts | None = None) -> Verdict:
    (verdict,) = verdicts(claim, folder, texts)
    return verdict


def write(folder: Path, row: str, *bpc: float, **options: Any) -> None:
    """One run a seed."""
    for seed, value in enumerate(bpc, start=1):
        write_run(folder / f"{row}-{seed}-{len(options)}", f"modern-{row}", seed, value, **options)


def test_the_claims_are_numbered_and_every_rule_is_one_that_there_is() -> None:
    assert [claim.id for claim in load_claims()] == list(range(1, 21))
    assert {claim.test for claim in load_claims()} == set(RULES)
    for claim in load_claims():
        assert claim.rows
        for row in claim.rows:
            assert recipe_of(row, "paper").name


def test_the_package_carries_what_is_published() -> None:
    for name in ("claims.yaml", "paper.csv"):
        assert (ROOT / "src/gfrnn/report" / name).read_text() == (ROOT / "results" / name).read_text()
    numbers = {
        row["recipe"]: row["value"] for row in csv.DictReader((ROOT / "results/paper.csv").read_text().splitlines())
    }
    first = next(claim["paper"] for claim in document()["claims"] if claim["id"] == 1)
    for row in ("single", "stacked", "gated"):
        assert numbers[f"hutter-{row}-lstm"] in first


def test_lower_is_decided_by_pairs_of_seeds(tmp_path: Path) -> None:
    write(tmp_path / "yes", "gated-L-lstm", 1.70, 1.75, 1.80)
    write(tmp_path / "yes", "gated-lstm", 1.73, 1.785, 1.828)
    found = only(6, tmp_path / "yes")
    assert (found.word, found.group) == ("reproduced", GROUP)
    gain = "by 0.0310 test BPC (95 % over 3 seeds: +0.0220 to +0.0400)"
    assert found.why == f"gated-L-lstm is better than gated-lstm {gain}"
    write(tmp_path / "no", "gated-L-lstm", 1.73, 1.785, 1.828)
    write(tmp_path / "no", "gated-lstm", 1.70, 1.75, 1.80)
    other_way = only(6, tmp_path / "no")
    assert other_way.word == "contradicted"
    assert other_way.why == f"gated-lstm is better than gated-L-lstm {gain}"
    write(tmp_path / "noise", "gated-L-lstm", 1.70, 1.80)
    write(tmp_path / "noise", "gated-lstm", 1.75, 1.76)
    assert only(6, tmp_path / "noise").word == "undecided"


def test_a_difference_that_nobody_would_notice_is_said_to_be_one(tmp_path: Path) -> None:
    write(tmp_path / "c", "gated-L-lstm", 1.700, 1.750)
    write(tmp_path / "c", "gated-lstm", 1.7011, 1.7512)
    found = only(6, tmp_path / "c")
    assert found.word == "reproduced"
    assert "less than 0.005 BPC is of no practical interest" in found.why


def test_one_seed_decides_nothing_and_has_the_interval_of_the_text(tmp_path: Path) -> None:
    write(tmp_path / "c", "gated-L-lstm", 1.70)
    write(tmp_path / "c", "gated-lstm", 1.60)
    found = only(6, tmp_path / "c")
    assert found.word == "undecided"
    assert found.why.startswith("one seed only: gated-lstm is better than gated-L-lstm by 0.1000 test BPC (95 % over")
    write(tmp_path / "d", "gated-L-lstm", 1.70)
    write_run(tmp_path / "d/other", "modern-gated-lstm", 2, 1.8)
    assert only(6, tmp_path / "d").why == "no seed that both gated-L-lstm and gated-lstm were trained with"


def test_without_the_test_split_the_validation_is_told_and_decides_nothing(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path / f"c/a{seed}", "modern-gated-L-lstm", seed, curve=(2.0,))
        write_run(tmp_path / f"c/b{seed}", "modern-gated-lstm", seed, curve=(2.1,))
    found = only(6, tmp_path / "c")
    assert found.word == "undecided"
    assert "on the validation split gated-L-lstm is better than gated-lstm by 0.1000 BPC (one seed)" in found.why


def test_a_chain_is_as_strong_as_its_weakest_link(tmp_path: Path) -> None:
    write(tmp_path / "c", "single-lstm", 1.90, 1.91)
    write(tmp_path / "c", "stacked-lstm", 1.87, 1.881)
    write(tmp_path / "c", "gated-lstm", 1.84, 1.852)
    assert only(1, tmp_path / "c").word == "reproduced"
    assert only(8, tmp_path / "c").why.startswith("no run of feedback-lstm yet")
    assert only(3, tmp_path / "c").why.startswith("no run of gated-own-lstm yet; 2 seeds with modern settings would")
    write(tmp_path / "d", "single-lstm", 1.90, 1.91)
    write(tmp_path / "d", "stacked-lstm", 1.87, 1.881)
    write(tmp_path / "d", "gated-lstm", 1.98, 1.992)
    assert only(1, tmp_path / "d").word == "contradicted"
    write(tmp_path / "e", "single-lstm", 1.80, 1.811)  # the first link contradicts, whatever the missing last row is
    write(tmp_path / "e", "stacked-lstm", 1.87, 1.88)
    assert only(1, tmp_path / "e").word == "contradicted"


def test_every_budget_speaks_for_itself_and_the_longest_that_decides_counts(tmp_path: Path) -> None:
    write(tmp_path / "c", "gated-L-lstm", 1.70)
    write(tmp_path / "c", "gated-lstm", 1.60)
    write(tmp_path / "c", "gated-L-lstm", 2.0, 2.01, epochs=None, chars=10_000_000, curve=(2.0,))
    write(tmp_path / "c", "gated-lstm", 2.1, 2.111, epochs=None, chars=10_000_000, curve=(2.0,))
    found = verdicts(6, tmp_path / "c")
    assert [(verdict.word, verdict.group) for verdict in found] == [
        ("undecided", GROUP),
        ("reproduced", ("modern", "10M")),
    ]
    assert summary(found) is found[1]
    assert summary(found[:1]) is found[0]


def test_faster_asks_when_the_others_best_is_reached(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"c/g{seed}", "modern-gated-lstm", seed, curve=(2.8, 1.9, 1.8), seconds=200.0)
        write_run(tmp_path / f"c/s{seed}", "modern-stacked-lstm", seed, curve=(3.0, 2.5, 2.0), seconds=60.0)
    by_updates, by_time = only(9, tmp_path / "c"), only(11, tmp_path / "c")
    assert by_updates.word == "reproduced"
    assert "seed 1: after 67 % of the updates of the latter" in by_updates.why
    assert by_time.word == "contradicted"
    assert "seed 2: after 222 % of the time" in by_time.why
    write_run(tmp_path / "d/g", "modern-gated-lstm", curve=(2.8, 2.7))
    write_run(tmp_path / "d/s", "modern-stacked-lstm", machine={**MACHINE, "cpu": "Another CPU"})
    assert only(9, tmp_path / "d").why.startswith("one seed only: when gated-lstm reaches the best validation")
    assert "seed 1: never (0.7000 short of it)" in only(9, tmp_path / "d").why
    assert only(11, tmp_path / "d").why.startswith("one seed only: when")  # who never gets there needs no clock
    write_run(tmp_path / "e/g", "modern-gated-lstm", curve=(2.8, 1.7), seconds=20.0)
    write_run(tmp_path / "e/s", "modern-stacked-lstm", machine={**MACHINE, "cpu": "Another CPU"}, seconds=60.0)
    elsewhere = only(11, tmp_path / "e")
    assert elsewhere.why.startswith("times do not compare (the runs are of different machines")
    assert elsewhere.why.endswith("seed 1: it does")  # and no share of a time that says nothing


@pytest.mark.parametrize("place", ["c", "c/g2"])
def test_minutes_of_a_busy_machine_decide_nothing(place: str, tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"c/g{seed}", "modern-gated-lstm", seed, curve=(2.8, 1.9, 1.8), seconds=20.0)
        write_run(tmp_path / f"c/s{seed}", "modern-stacked-lstm", seed, curve=(3.0, 2.5, 2.0), seconds=60.0)
    assert only(11, tmp_path / "c").word == "reproduced"
    (tmp_path / place / "clock.txt").write_text("the machine had\nother work\n")
    by_updates, by_time = only(9, tmp_path / "c"), only(11, tmp_path / "c")
    assert by_updates.word == "reproduced"
    assert by_time.word == "undecided"
    assert by_time.why.startswith("times do not compare (the machine had other work); when gated-lstm reaches")
    for seed in (1, 2):
        write_run(tmp_path / f"d/g{seed}", "modern-gated-lstm", seed, curve=(2.8, 2.7), seconds=20.0)
        write_run(tmp_path / f"d/s{seed}", "modern-stacked-lstm", seed, curve=(3.0, 2.5, 2.0), seconds=60.0)
    (tmp_path / "d/clock.txt").write_text("it was busy\n")
    assert only(11, tmp_path / "d").word == "contradicted"
    evidence = collect([tmp_path / "c"])
    assert "Times do not compare: the machine had other work." in table_of(evidence, GROUP, ["gated-lstm"]).caption


def grid(gain: float, nesting: float = 0.0, seed: int = 0) -> dict[tuple[int, int], list[int]]:
    """Right symbols of 20 programs a cell, out of 5: about 2, and so much more, growing with nesting."""
    generator = np.random.default_rng(seed)
    return {
        (n, length): generator.binomial(5, min(0.95, 0.4 + gain + nesting * (n - 1)), 20).tolist()
        for n in range(1, 6)
        for length in range(1, 11)
    }


def test_cells_are_compared_program_by_program(tmp_path: Path) -> None:
    write_programs(tmp_path / "c/s", "programs-stacked-lstm", grid(0.0))
    write_programs(tmp_path / "c/g", "programs-gated-lstm", grid(0.5, seed=1))
    found = only(14, tmp_path / "c")
    assert found.word == "reproduced"
    assert "has more symbols right in 50 and fewer in 0 of 50 cells (one seed)" in found.why
    assert only(15, tmp_path / "c").why.startswith("no run of programs-gated-gru, programs-stacked-gru yet")
    write_programs(tmp_path / "d/s", "programs-stacked-lstm", grid(0.5, seed=1))
    write_programs(tmp_path / "d/g", "programs-gated-lstm", grid(0.0))
    assert only(14, tmp_path / "d").word == "contradicted"
    write_programs(tmp_path / "e/s", "programs-stacked-lstm", grid(0.0))
    write_programs(tmp_path / "e/g", "programs-gated-lstm", grid(0.0, seed=1))
    assert only(14, tmp_path / "e").word == "undecided"


def test_whole_answers_are_counted_where_only_one_model_has_them(tmp_path: Path) -> None:
    everything = {place: [5] * 20 for place in grid(0)}
    first = {**everything, (1, 1): [5] * 12 + [4] * 8}
    second = {**everything, (1, 1): [4] * 14 + [5] * 6, (2, 3): [0] * 20}
    write_programs(tmp_path / "c/g", "programs-gated-lstm", first)
    write_programs(tmp_path / "c/s", "programs-stacked-lstm", second)
    pairs = grids.pairs("programs-gated-lstm", "programs-stacked-lstm", collect([tmp_path]), ("paper", "30epochs"))
    answers = grids.whole_answers(*pairs[0])
    assert answers.cells[1, 1][:2] == (12, 6)
    assert answers.cells[1, 1][2] == pytest.approx(0.2379, abs=1e-4)
    assert answers.cells[2, 3][:2] == (20, 0)
    assert answers.cells[5, 5] == (0, 0, 1.0)
    assert answers.counts() == (1, 0)


def test_a_gain_that_grows_has_a_slope(tmp_path: Path) -> None:
    write_programs(tmp_path / "c/s", "programs-stacked-lstm", grid(0.0))
    write_programs(tmp_path / "c/g", "programs-gated-lstm", grid(0.0, nesting=0.1, seed=1))
    by_nesting = only(17, tmp_path / "c")
    assert by_nesting.word == "reproduced"
    assert "percentage points per level of nesting" in by_nesting.why
    pairs = grids.pairs("programs-gated-lstm", "programs-stacked-lstm", collect([tmp_path]), ("paper", "30epochs"))
    gains = grids.gains(pairs)
    means = [sum(gains[n, k][0].sum() for k in range(1, 11)) / 1000 for n in range(1, 6)]
    found = grids.slope(gains, 0)
    assert found.value == pytest.approx(np.polyfit(range(1, 6), means, 1)[0])
    assert found.low < found.value < found.high
    assert (found.low, found.high) == pytest.approx((0.1, 0.1), abs=0.03)
    assert only(16, tmp_path / "c").word == "undecided"  # nothing grows with the length


def test_a_loss_that_shrinks_is_no_gain_that_grows(tmp_path: Path) -> None:
    write_programs(tmp_path / "c/s", "programs-stacked-lstm", grid(0.5))
    write_programs(tmp_path / "c/g", "programs-gated-lstm", grid(0.0, nesting=0.1, seed=1))
    found = only(17, tmp_path / "c")
    assert found.word == "undecided"
    assert found.why.endswith("less of a loss") and "but at nesting 5 it is -" in found.why


def test_groups_that_contradict_one_another_decide_nothing(tmp_path: Path) -> None:
    write_programs(tmp_path / "c/s", "programs-stacked-lstm", grid(0.0))
    write_programs(tmp_path / "c/g", "programs-gated-lstm", grid(0.5, seed=1))
    write_programs(tmp_path / "c/ms", "modern-programs-stacked-lstm", grid(0.5, seed=1))
    write_programs(tmp_path / "c/mg", "modern-programs-gated-lstm", grid(0.0))
    found = verdicts(14, tmp_path / "c")
    assert {verdict.word for verdict in found} == {"reproduced", "contradicted"}
    assert summary(found).word == "undecided" and "depends" in summary(found).why
    assert all(verdict.one_pair for verdict in found)


def test_seeds_of_programs_are_pooled_program_by_program(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_programs(tmp_path / f"c/s{seed}", "programs-stacked-lstm", 2, seed)
        write_programs(tmp_path / f"c/g{seed}", "programs-gated-lstm", 2 + seed, seed)
    found = only(14, tmp_path / "c")
    assert "(2 seeds)" in found.why
    pairs = grids.pairs("programs-gated-lstm", "programs-stacked-lstm", collect([tmp_path]), ("paper", "30epochs"))
    gain, symbols = grids.gains(pairs)[1, 1]
    assert gain.tolist() == [3] * 20
    assert symbols.tolist() == [10] * 20


def test_tags_are_decided_by_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "c", "gated-lstm", 1.8)
    write(tmp_path / "c", "stacked-lstm", 1.8)
    closes, forgets = "<id>7</id> <b>x</b>", "<id>7 <b>x</b>"
    drawn = [{"offset": k, "gated-lstm": closes, "stacked-lstm": forgets if k % 2 else closes} for k in range(200)]
    texts = Texts("", GROUP, {"drawn": drawn})
    found = only(13, tmp_path / "c", texts)
    assert found.word == "reproduced"
    assert "gated-lstm closes 400 of 400 tags and stacked-lstm closes 300 of 400 tags" in found.why
    assert only(13, tmp_path / "c", Texts("", GROUP, {"drawn": drawn[:50]})).word == "undecided"
    nothing = [{"gated-lstm": "", "stacked-lstm": closes}] * 200
    assert only(13, tmp_path / "c", Texts("", GROUP, {"drawn": nothing})).why.startswith("too few tags")
    assert only(13, tmp_path / "c", Texts("there is no enwik8")) == Verdict("undecided", "there is no enwik8")
    assert only(13, tmp_path / "c") == Verdict("undecided", "no texts were written")


def test_what_is_out_of_reach_has_a_price(tmp_path: Path) -> None:
    found = only(20, tmp_path / "nothing")
    assert found.word == "out of reach"
    assert "`gfrnn train hutter-large` reads 9,000 M characters" in found.why
    write_run(tmp_path / "c/small", "hutter-gated-lstm", seconds=100.0)
    evidence = collect([tmp_path / "c"])
    cost = cost_of("large", evidence)
    assert "10,000 characters per second of small on 1 thread of Test CPU" in cost.source
    heavier = cost.seconds / (9e9 / 10_000)
    assert 45 < heavier < 65  # 60 times the parameters, but for those that are looked up


def test_a_price_is_not_taken_from_a_busy_machine(tmp_path: Path) -> None:
    write_run(tmp_path / "c/busy", "hutter-gated-lstm", 1, seconds=1000.0)
    write_run(tmp_path / "c/quiet", "hutter-gated-lstm", 2, seconds=100.0)
    (tmp_path / "c/busy/clock.txt").write_text("other work\n")
    evidence = collect([tmp_path / "c"])
    assert "10,000 characters per second of quiet" in cost_of("gated-lstm", evidence).source
    (tmp_path / "c/quiet/clock.txt").write_text("other work\n")
    assert "1,000 characters per second of busy" in cost_of("gated-lstm", collect([tmp_path / "c"])).source


def test_the_large_model_is_judged_by_its_number(tmp_path: Path) -> None:
    write_run(tmp_path / "c/large", "hutter-large", 1, 1.61)
    assert only(20, tmp_path / "c").word == "reproduced"
    write_run(tmp_path / "d/large", "hutter-large", 1, 1.70)
    assert only(20, tmp_path / "d").word == "contradicted"
    for row in ("large", "gated-lstm"):
        write_run(tmp_path / "e" / row, f"hutter-{row}", 1, 1.70, epochs=1.0)
    assert only(20, tmp_path / "e").why.endswith("after less training than the recipe's")


def test_a_claim_names_its_rows() -> None:
    assert CLAIMS[1].rows == ("single-lstm", "stacked-lstm", "gated-lstm")
    assert CLAIMS[20].rows == ("large",)
