"""The tests that claims.yaml names, one function each: what a group of runs says of a claim, or None if nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gfrnn.report import grids
from gfrnn.report.cost import cost_of
from gfrnn.report.evidence import Evidence
from gfrnn.report.finished import Group, Run
from gfrnn.report.statistics import Interval, bootstrap_ratio, mean_interval, merged
from gfrnn.training.plan import in_words

Word = Literal["reproduced", "contradicted", "undecided", "out of reach"]
Options = Mapping[str, Any]
NOT_TESTED = "not evaluated on the test split"
LEAST_SEEDS = 2  # that decide anything
BOOTSTRAP_BLOCKS = 50  # of 1,000 characters: 50 kB at a time, so that neighbours are drawn together


@dataclass(frozen=True)
class Verdict:
    """What one group of runs (settings, budget) says of a claim, and why."""

    word: Word
    why: str
    group: Group | None = None
    one_pair: bool = False  # of models: the noise between seeds is not in it


def judged(interval: Interval) -> Word:
    if not interval.excludes_zero:
        return "undecided"
    return "reproduced" if interval.low > 0 else "contradicted"


def between_seeds(better: dict[int, Run], worse: dict[int, Run]) -> tuple[list[int], list[float]]:
    """Seeds that both have, and by how many bits per character the better one is better."""
    pairs = {seed: (better[seed].test_bpc, worse[seed].test_bpc) for seed in sorted(better.keys() & worse.keys())}
    gains = {seed: b - a for seed, (a, b) in pairs.items() if a is not None and b is not None}
    return list(gains), list(gains.values())


def of_the_text(better: Run, worse: Run) -> Interval | None:
    """The interval of one pair's difference in BPC over the test text, if both keep their blocks."""
    a, b = better.blocks, worse.blocks
    if a is None or b is None or len(a.bits) <= BOOTSTRAP_BLOCKS:
        return None
    b.comparable(a)
    return bootstrap_ratio(merged(b.bits - a.bits, BOOTSTRAP_BLOCKS), merged(a.sizes, BOOTSTRAP_BLOCKS))


def compare(better_row: str, worse_row: str, options: Options, evidence: Evidence, group: Group) -> Verdict | None:
    """The rule `lower` for two rows."""
    better, worse = evidence.of(better_row, group), evidence.of(worse_row, group)
    if not better or not worse:
        return None
    seeds, gains = between_seeds(better, worse)
    if not seeds:
        return Verdict("undecided", without_test(better_row, better, worse_row, worse), group)
    interval = mean_interval(gains)
    if interval is None:
        text = of_the_text(better[seeds[0]], worse[seeds[0]])
        said = ahead(better_row, worse_row, gains[0], text, "the test text")
        return Verdict("undecided", f"one seed only: {said}", group)
    said = ahead(better_row, worse_row, interval.value, interval, f"{interval.count} seeds")
    if abs(interval.value) < options["margin_of_interest"]:
        said += f"; less than {options['margin_of_interest']} BPC is of no practical interest"
    return Verdict(judged(interval), said, group)


def ahead(better_row: str, worse_row: str, gain: float, noise: Interval | None = None, over: str = "") -> str:
    """Who is better, by how much, and how sure that is.

    >>> ahead("gated", "stacked", -0.02, Interval(-0.02, -0.03, 0.01, 3), "3 seeds")
    'stacked is better than gated by 0.0200 test BPC (95 % over 3 seeds: -0.0100 to +0.0300)'
    """
    first, second = (better_row, worse_row) if gain >= 0 else (worse_row, better_row)
    said = f"{first} is better than {second} by {abs(gain):.4f} test BPC"
    if noise is None:
        return said
    low, high = (noise.low, noise.high) if gain >= 0 else (-noise.high, -noise.low)
    return f"{said} (95 % over {over}: {low:+.4f} to {high:+.4f})"


def without_test(better_row: str, better: dict[int, Run], worse_row: str, worse: dict[int, Run]) -> str:
    """Why two rows are not compared on the test split, and what their validation says."""
    seeds = sorted(better.keys() & worse.keys())
    if not seeds:
        return f"no seed that both {better_row} and {worse_row} were trained with"
    a, b = better[seeds[0]].valid_bpc, worse[seeds[0]].valid_bpc
    valid = "" if a is None or b is None else f"; on the validation split {ahead(better_row, worse_row, b - a)}"
    return f"{NOT_TESTED}{valid.replace('test BPC', 'BPC (one seed)')}"


def lower(options: Options, evidence: Evidence, group: Group) -> Verdict | None:
    return compare(options["better"], options["worse"], options, evidence, group)


def chain(options: Options, evidence: Evidence, group: Group) -> Verdict | None:
    rows = options["chain"]
    parts = [compare(better, worse, options, evidence, group) for worse, better in itertools.pairwise(rows)]
    found = [part for part in parts if part is not None]
    words = {part.word for part in found}
    if not found or (not evidence.of(rows[-1], group) and "contradicted" not in words):
        return None  # the last row is what the claim is about
    absent = [row for row in rows if not evidence.of(row, group)]
    word: Word = "undecided"
    if "contradicted" in words:
        word = "contradicted"
    elif words == {"reproduced"} and len(found) == len(parts):
        word = "reproduced"
    missing = [f"no run of {' and '.join(absent)} yet"] if absent else []
    said = "; ".join([*(part.why for part in found), *missing])
    if said.startswith(NOT_TESTED):  # once is enough
        said = NOT_TESTED + "; " + said.replace(f"{NOT_TESTED}; ", "")
    return Verdict(word, said, group)


def faster(options: Options, evidence: Evidence, group: Group) -> Verdict | None:
    better, worse = evidence.of(options["better"], group), evidence.of(options["worse"], group)
    seeds = sorted(s for s in better.keys() & worse.keys() if better[s].validations and worse[s].validations)
    if not seeds:
        return None
    axis = {"updates": "step", "seconds": "seconds"}[options["by"]]
    shares = {seed: share_needed(better[seed], worse[seed], axis) for seed in seeds}
    ahead = [seed for seed, share in shares.items() if share is not None and share < 1]
    flaw = clock_flaw([run for seed in seeds for run in (better[seed], worse[seed])]) if axis == "seconds" else ""
    unit = {"updates": "updates", "seconds": "time"}[options["by"]]

    def when(seed: int, share: float | None) -> str:
        if share is None:
            return never(better[seed], worse[seed])
        return "it does" if flaw else f"after {100 * share:.0f} % of the {unit} of the latter"

    said = ", ".join(f"seed {seed}: {when(seed, share)}" for seed, share in shares.items())
    why = f"when {options['better']} reaches the best validation BPC of {options['worse']}: {said}"
    if flaw and any(share is not None for share in shares.values()):  # who never gets there needs no clock
        return Verdict("undecided", f"times do not compare ({flaw}); {why}", group)
    if len(seeds) < 2:
        return Verdict("undecided", f"one seed only: {why}", group)
    word: Word = "reproduced" if len(ahead) == len(seeds) else "contradicted" if not ahead else "undecided"
    return Verdict(word, why, group)


def clock_flaw(runs: list[Run]) -> str:
    """Why the minutes of these runs do not compare, if they do not."""
    machines = {(run.environment.get("cpu"), run.environment.get("threads")) for run in runs}
    if len(machines) > 1:
        names = sorted({str(cpu) for cpu, _ in machines})
        return "the runs are of different machines" + (f" ({' and '.join(names)})" if len(names) > 1 else "")
    return next((run.clock for run in runs if run.clock), "")


def share_needed(better: Run, worse: Run, axis: str) -> float | None:
    """Of what `worse` needed for its best validation, how much `better` needs for as good a one; None: never."""
    best = min(worse.validations, key=lambda record: record["bpc"])
    reached = next((record for record in better.validations if record["bpc"] <= best["bpc"]), None)
    return None if reached is None or not best[axis] else reached[axis] / best[axis]


def never(better: Run, worse: Run) -> str:
    """By how much the best of one stays above the best of the other."""
    short = min(r["bpc"] for r in better.validations) - min(r["bpc"] for r in worse.validations)
    return f"never ({short:.4f} short of it)"


def cells(options: Options, evidence: Evidence, group: Group) -> Verdict | None:
    pairs = grids.pairs(options["better"], options["worse"], evidence, group)
    if not pairs:
        return None
    intervals = grids.intervals(grids.gains(pairs)).values()
    more = sum(interval.low > 0 for interval in intervals)
    fewer = sum(interval.high < 0 for interval in intervals)
    up, down = grids.whole_answers(*pairs[0]).counts()
    why = (
        f"{options['better']} has more symbols right in {more} and fewer in {fewer} of {len(intervals)} cells "
        f"({seeds_of(pairs)}); of whole answers, by McNemar's test at p < 0.05, more in {up} and fewer in {down}"
    )
    word: Word = "contradicted" if 2 * fewer > len(intervals) else "undecided"
    if 2 * more > len(intervals) and more > 5 * fewer:
        word = "reproduced"
    return Verdict(word, why, group, len(pairs) == 1)


def grows(options: Options, evidence: Evidence, group: Group) -> Verdict | None:
    pairs = grids.pairs(options["better"], options["worse"], evidence, group)
    if not pairs:
        return None
    gains, axis = grids.gains(pairs), 0 if options["with"] == "nesting" else 1
    interval = grids.slope(gains, axis)
    step = {"nesting": "level of nesting", "length": "digit of length"}[options["with"]]
    said = f"the gain changes by {100 * interval.value:+.3f} percentage points per {step}"
    spread = f"95 % over programs: {100 * interval.low:+.3f} to {100 * interval.high:+.3f}; {seeds_of(pairs)}"
    why, word = f"{said} ({spread})", judged(interval)
    level, end = grids.along(gains, axis)[-1]
    if word == "reproduced" and end.low <= 0:
        spread = f"95 %: {100 * end.low:+.2f} to {100 * end.high:+.2f}"
        why += f", but at {options['with']} {level} it is {100 * end.value:+.2f} points ({spread}): less of a loss"
        word = "undecided"
    return Verdict(word, why, group, len(pairs) == 1)


def seeds_of(pairs: list[Any]) -> str:
    return "one seed" if len(pairs) == 1 else f"{len(pairs)} seeds"


def tags(options: Options, evidence: Evidence, group: Group) -> Verdict | None:
    """Decided by texts, which are written by report/texts.py and kept with the campaign."""
    texts = options["texts"]
    if not texts or texts.group != group:
        return None
    interval, rates = texts.difference(options["better"], options["worse"])
    said = " and ".join(f"{row} closes {closed} of {opened} tags" for row, (closed, opened) in rates.items())
    if interval is None:
        return Verdict("undecided", f"too few tags were opened: {said}", group)
    spread = f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f} points, 95 % over {interval.count} prompts"
    gain = f"difference {100 * interval.value:+.1f} points ({spread}; one model each)"
    few = "" if interval.count >= options["seeds_of_text"] else f"fewer than {options['seeds_of_text']} prompts; "
    return Verdict("undecided" if few else judged(interval), f"{few}{said}: {gain}", group, True)


def comparable(options: Options, evidence: Evidence, group: Group) -> Verdict | None:
    runs = [run for run in evidence.of(options["better"], group).values() if run.test_bpc is not None]
    if not runs:
        return None
    best, limit = min(run.test_bpc or 0.0 for run in runs), options["value"] + options["margin"]
    said = f"test BPC {best:.3f}, at most {limit:.2f} is asked for"
    if best <= limit:
        return Verdict("reproduced", said, group)
    if not all(run.alone_is_enough for run in runs):
        return Verdict("undecided", f"{said}, after less training than the recipe's", group)
    return Verdict("contradicted", said, group)


def nothing_yet(test: str, options: Options, evidence: Evidence) -> Verdict:
    """When no run says anything of a claim."""
    if test == "comparable":
        return Verdict("out of reach", cost_of(options["better"], evidence).words)
    if test == "tags":
        texts = options["texts"]
        return Verdict("undecided", "no texts were written" if texts is None else texts.why_none)
    rows = options.get("chain") or [options["better"], options["worse"]]
    missing = [row for row in rows if not any(run.row == row for run in evidence.runs)]
    if not missing:
        return Verdict("undecided", f"no runs of {', '.join(rows)} with equal settings and budget")
    seconds = LEAST_SEEDS * sum(cost_of(row, evidence, "modern").seconds for row in missing)
    cost = f"{LEAST_SEEDS} seeds with modern settings would take about {in_words(seconds)} of one core"
    return Verdict("undecided", f"no run of {', '.join(missing)} yet; {cost}")


RULES: dict[str, Callable[[Options, Evidence, Group], Verdict | None]] = {
    "lower": lower,
    "chain": chain,
    "faster": faster,
    "cells": cells,
    "grows": grows,
    "tags": tags,
    "comparable": comparable,
}
