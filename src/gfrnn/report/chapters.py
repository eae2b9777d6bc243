"""What a report says, chapter by chapter, of what was collected. Nothing here reads a file or runs a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from gfrnn.report.claims import Claim, summary
from gfrnn.report.document import Block, Bullets, Code, Heading, Paragraph, Sample, Table
from gfrnn.report.evidence import Evidence
from gfrnn.report.finished import Run
from gfrnn.report.grids import LIMIT, Answers
from gfrnn.report.rules import Verdict, Word
from gfrnn.report.tags import find_tags
from gfrnn.report.texts import PROMPTS, READ, ROWS, SAMPLES, WRITTEN, Texts
from gfrnn.report.wording import budget_words, group_words, row_words
from gfrnn.training.plan import in_words

Judged = Sequence[tuple[Claim, list[Verdict]]]


def opening(evidence: Evidence, judged: Judged) -> list[Block]:
    """What this is, and what came of it, before anything else."""
    chosen = [summary(verdicts) for _, verdicts in judged]
    counts = Counter(verdict.word for verdict in chosen)
    said = ", ".join(f"**{counts[word]} {word}**" for word in get_args(Word) if counts[word])
    ours = sum(claim.ours for claim, _ in judged)
    whose = f"{len(judged) - ours} claims of the paper" + (f" and {ours} of its equations as printed" if ours else "")
    seeds = max((len(evidence.of(run.row, run.group)) for run in evidence.runs), default=0)
    most = "one seed each" if seeds == 1 else f"up to {seeds} seeds a row"
    return [
        Paragraph(
            "Gated Feedback Recurrent Neural Networks (Chung, Gulcehre, Cho and Bengio, 2015): every table and figure "
            f"of the paper beside ours, from {len(evidence.runs)} runs, {most}. Of {whose}: {said}."
            f"{by_what([verdict for verdict in chosen if verdict.word in ('reproduced', 'contradicted')])}"
        )
    ]


def by_what(decided: list[Verdict]) -> str:
    """How much training, and how many models, stand behind what was decided."""
    if not decided:
        return ""
    budgets = Counter(budget_words(verdict.group[1]) for verdict in decided if verdict.group)
    trained = ", ".join(f"{budget} ({count})" for budget, count in budgets.most_common())
    alone = sum(verdict.one_pair for verdict in decided)
    pairs = f" {alone} of the {len(decided)} are of one pair of models each, over many test programs." if alone else ""
    return f" They were decided after trainings of {trained}, where the paper's networks read up to 100 epochs.{pairs}"


def claims(judged: Judged) -> list[Block]:
    rows = []
    for claim, verdicts in judged:
        chosen = summary(verdicts)
        ordered = [chosen, *(verdict for verdict in verdicts if verdict is not chosen)]
        rows.append(
            [str(claim.id), f"{claim.claim}\n({claim.paper})", chosen.word, "\n".join(said(v, chosen) for v in ordered)]
        )
    table = Table(
        "The paper's claims, and what the runs say of each. The test that decides each is fixed in `claims.yaml`.",
        ["", "the paper's claim, and where it makes it", "verdict", "what the runs say"],
        ["number", "text", "verdict", "text"],
        rows,
    )
    return [Heading("Claims and verdicts"), table, Bullets(RULES)]


RULES = (
    "**Between seeds** (is it the architecture, or luck?): differences are paired by seed, with a 95 % t interval. A "
    "claim about bits per character is decided by it alone, so one seed decides nothing.",
    "**Of the test text** (would another text say so, too?): a paired bootstrap over blocks of 50 kB. It is shown "
    "where there is one seed, and decides nothing.",
    "**Of the test programs**: the gain in symbols by a paired bootstrap over programs, whole answers by McNemar's "
    "exact test. The noise between seeds is not in it, so one seed speaks of its two models only.",
    "Where groups of runs that decide a claim contradict one another, it is undecided. Rows go by their recipes' "
    "names: `gated-own` has gates that see their own layer only, as the equations are printed, and more units; "
    "`gated-L` as many units as the stack; `feedback` gates fixed to 1.",
    "Runs are compared within one group of equal settings and budget, never across groups. **A verdict is of the "
    "settings and the budget that it names**: the paper's networks read up to 9,000 M characters (100 epochs) or 9.6 M "
    "programs (30 epochs), with its own settings.",
)


def said(verdict: Verdict, chosen: Verdict) -> str:
    group = f"**{group_words(verdict.group)}**: " if verdict.group else ""
    other = f"{verdict.word}; " if verdict.word != chosen.word else ""
    return f"{group}{other}{verdict.why}"


def answers(unit: str, found: Answers) -> Table:
    """McNemar's test of whole answers, cell by cell."""
    nestings, lengths = (sorted({place[axis] for place in found.cells}) for axis in (0, 1))

    def shown(nesting: int, length: int) -> str:
        first, second, p = found.cells[nesting, length]
        stars = "**" if p < LIMIT / len(found.cells) else "*" if p < LIMIT else ""
        return f"{first}:{second}{stars.replace('*', '†')}"

    rows = [[str(n), *(shown(n, length) for length in lengths)] for n in reversed(nestings)]
    more, fewer = found.counts()
    caption = (
        f"{unit}: answers that only gated feedback has right : only the stack. † p < {LIMIT} (McNemar, exact), "
        f"†† p < {LIMIT / len(found.cells):g}, which allows for {len(found.cells)} cells. "
        f"More answers right in {more} cells, fewer in {fewer}."
    )
    header = ["nesting", *(f"length {lengths[0]}" if k == lengths[0] else str(k) for k in lengths)]
    return Table(caption, header, ["number"] * (1 + len(lengths)), rows)


def texts(found: Texts) -> list[Block]:
    blocks: list[Block] = [Heading("Generated text")]
    if not found or found.group is None:
        return [*blocks, Paragraph(f"Nothing was written: {found.why_none}.")]
    blocks.append(
        Paragraph(
            f"Both LSTMs ({group_words(found.group)}) continue the paper's two seeds, which are in the test split. The "
            f"first of {SAMPLES} samples each, drawn from the softmax as it is. Tags that are closed again, and those "
            "that close them, are marked in one way (green on the page, bold in Markdown); tags left open, and those "
            "that close what was never opened, in another (red, struck out in Markdown)."
        )
    )
    blocks += [Sample(seed["prompt"], [(row_words(row), seed[row][0]) for row in ROWS]) for seed in found.seeds]
    rows = [
        [f"seed {number}", row_words(row), *(closed(seed, row, name) for name in ("username", "contributor")),
         closed(seed, row, None)]
        for number, seed in enumerate(found.seeds, start=1)
        for row in ROWS
    ]  # fmt: skip
    caption = f"Tags closed of those open, over the {SAMPLES} samples; the seed's own open tags count."
    kinds = ["text", "text", "number", "number", "number"]
    blocks.append(Table(caption, ["", "model", "`<username>`", "`<contributor>`", "all"], kinds, rows))  # type: ignore[arg-type]
    interval, rates = found.difference("gated-lstm", "stacked-lstm")
    counts = " and ".join(f"{row_words(row)} closes {c} of {o} tags" for row, (c, o) in rates.items())
    if interval is not None:
        spread = f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f} points"
        counts += f": a difference of {100 * interval.value:+.1f} points (95 % over prompts: {spread})"
    blocks.append(
        Paragraph(
            f"The same as a rate: after {PROMPTS} prompts of {READ} characters drawn evenly from the test split, each "
            f"model writes {WRITTEN:,}. Of the tags opened there, {counts}. Tags that are opened near the end have no "
            "room to be closed, for both alike."
        )
    )
    return blocks


def closed(seed: dict[str, Any], row: str, name: str | None) -> str:
    kinds = [
        tag.kind
        for text in seed[row]
        for tag in find_tags(seed["prompt"] + text)
        if name in (None, tag.name) and tag.end > tag.start
    ]
    return f"{kinds.count('closed')} of {kinds.count('closed') + kinds.count('left open')}"


def gates(document: dict[str, Any]) -> list[Block]:
    """In words: who is heard most and least, and what is moved most by what happens in the text."""
    mean, deviation = np.array(document["mean"]), np.array(document["deviation"])
    layers = len(mean)
    pairs = [(hears, heard) for hears in range(layers) for heard in range(layers)]
    most, least = max(pairs, key=lambda p: mean[p]), min(pairs, key=lambda p: mean[p])
    rows = [
        [f"layer {j + 1} hears", *(f"{mean[j, i]:.2f} ± {deviation[j, i]:.2f}" for i in range(layers))]
        for j in reversed(range(layers))
    ]
    table = Table(
        "Mean and standard deviation of every gate over the text.",
        ["", *(f"layer {heard + 1}" for heard in range(layers))],
        ["text", *["number"] * layers],  # type: ignore[list-item]
        rows,
    )
    own = [mean[j, j] for j in range(layers)]
    others = [mean[p] for p in pairs if p[0] != p[1]]
    return [
        Heading("What the gates do"),
        Paragraph(
            f"The gates g of {document['model']}, over {document['characters']:,} characters of {document['text']}. "
            "The gate i → j scales what layer j hears of layer i's past, in the candidate only. Most open is "
            f"{name_of(most)} ({mean[most]:.2f} on average), most shut {name_of(least)} ({mean[least]:.2f}). A layer's "
            f"own past passes with {np.mean(own):.2f} on average, another layer's with {np.mean(others):.2f}. "
            f"{moved(document)}"
        ),
        table,
    ]


def name_of(pair: tuple[int, int]) -> str:
    return f"{pair[1] + 1} → {pair[0] + 1}"


def moved(document: dict[str, Any]) -> str:
    """Which gate departs most from its mean at each event."""
    mean, sentences = np.array(document["mean"]), []
    for event, found in document["around"].items():
        if not found["count"]:
            continue
        change = np.array(found["mean"]) - mean
        at = np.unravel_index(np.abs(change).argmax(), change.shape)
        offset = int(at[0]) - len(change) // 2
        many = f"{abs(offset)} character{'' if abs(offset) == 1 else 's'}"
        where = "at it" if offset == 0 else f"{many} {'after' if offset > 0 else 'before'} it"
        gate = name_of((int(at[1]), int(at[2])))
        sentences.append(f"{event}: {gate}, by {change[at]:+.2f}, {where}")
    return f"What moves most when {'; when '.join(sentences)}." if sentences else ""


def environment(evidence: Evidence) -> list[Block]:
    """Where every run was made and how long it took, with credit for those made elsewhere."""
    rows = [
        [
            evidence.name(run.folder),
            f"{run.row}, seed {run.seed}",
            str(run.environment.get("cpu", "?")),
            str(run.environment.get("threads", "?")),
            run.precision,
            str(run.environment.get("torch", "?")),
            str(run.environment.get("commit") or "?")[:12],
            in_words(run.seconds),
        ]
        for run in evidence.runs
    ]
    cores = sum(run.seconds * int(run.environment.get("threads", 1)) for run in evidence.runs)
    blocks: list[Block] = [
        Heading("Environment and cost"),
        Paragraph(f"All runs together are {in_words(cores)} of one core, validation included."),
        Table(
            "Where each run was trained.",
            ["run", "row", "CPU", "threads", "products in", "torch", "commit", "training"],
            ["text", "text", "narrow", "number", "narrow", "narrow", "narrow", "number"],
            rows,
        ),
    ]
    for cpu, names in elsewhere(evidence.runs, evidence).items():
        blocks.append(
            Paragraph(
                f"With credit: {', '.join(names)} {'was' if len(names) == 1 else 'were'} trained elsewhere, on {cpu}, "
                "with this project's own command, and used as it is. Its times do not compare with the others'."
            )
        )
    return blocks


def elsewhere(runs: Sequence[Run], evidence: Evidence) -> dict[str, list[str]]:
    """CPU -> runs, of those that were not made where most were."""
    counts = Counter(str(run.environment.get("cpu", "an unknown CPU")) for run in runs)
    if not counts:
        return {}
    home = counts.most_common(1)[0][0]
    found: dict[str, list[str]] = {}
    for run in runs:
        cpu = str(run.environment.get("cpu", "an unknown CPU"))
        if cpu != home:
            found.setdefault(cpu, []).append(evidence.name(run.folder))
    return found


def left_out(evidence: Evidence) -> list[Block]:
    """Every folder that looks like a run and is not in the tables, by reason."""
    if not evidence.left_out:
        return []
    reasons: dict[str, list[str]] = {}
    for folder, why in evidence.left_out:
        reasons.setdefault(relative(why, evidence.folders), []).append(evidence.name(folder))
    return [Heading("Left out"), Bullets([f"{', '.join(names)}: {why}" for why, names in reasons.items()])]


def relative(why: str, folders: Sequence[Path]) -> str:
    for folder in folders:
        why = why.replace(f"{folder}/", "")
    return why


def commands() -> list[Block]:
    return [
        Heading("How each number is made again"),
        Paragraph(
            "Every row of the tables names its command. A run folder has the options it was trained with "
            "(`config.yaml`), where (`env.json`) and every number on the way (`metrics.jsonl`). All together:"
        ),
        Code(COMMANDS),
    ]


COMMANDS = (
    "gfrnn reproduce table1                    # sizes",
    "gfrnn reproduce table2 --seeds 1 2 3 --dry-run   # what is missing, how long that takes; without --dry-run: do it",
    "gfrnn reproduce curves text ablation heatmaps --seeds 1 2 3 --dry-run",
    "gfrnn eval RUN --split test               # test BPC; the code length of every 1,000 characters is kept",
    "gfrnn plot RUN_A RUN_B                    # learning curves",
    "gfrnn report --out report                 # this page",
)
