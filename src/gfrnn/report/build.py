"""A report from run folders: collected, judged, drawn, and written as REPORT.md and report.html."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfrnn.errors import DataError, UsageError
from gfrnn.models.char_lm import CharLM
from gfrnn.models.pretrained import PACKAGED, find
from gfrnn.progress import LOG, Progress
from gfrnn.report import chapters, figures, forest, gates, grids, places, places_plot, tables
from gfrnn.report.claims import Claim, load_claims, summary
from gfrnn.report.document import Block, Document, Figure, Heading, Paragraph
from gfrnn.report.evidence import Evidence, collect
from gfrnn.report.finished import Group, Run
from gfrnn.report.gains import comparisons
from gfrnn.report.markdown import markdown
from gfrnn.report.page import page
from gfrnn.report.rules import Verdict
from gfrnn.report.texts import Texts, texts_of
from gfrnn.report.wording import UNITS, group_words
from gfrnn.storage.files import make_output, sha256_of
from gfrnn.storage.run_folder import MODEL, file_in
from gfrnn.tasks.text import corpus

TITLE = "Gated feedback, reproduced"
MARKDOWN, PAGE, FIGURES = "REPORT.md", "report.html", "figures"
NO_DRAWING = "The figures are missing: drawing them needs matplotlib, `pip install 'gfrnn[report]'`."


@dataclass
class Report:
    """Everything that is said, and the files it was written to."""

    evidence: Evidence
    judged: list[tuple[Claim, list[Verdict]]]
    document: Document
    files: list[Path]

    def as_json(self) -> dict[str, Any]:
        claims = [
            {
                "id": claim.id,
                "claim": claim.claim,
                "verdict": summary(verdicts).word,
                "groups": [{"group": v.group, "verdict": v.word, "why": v.why} for v in verdicts],
            }
            for claim, verdicts in self.judged
        ]
        left_out = {str(folder): why for folder, why in self.evidence.left_out}
        runs = [
            {"run": str(r.folder), "row": r.row, "group": r.group, "seed": r.seed, "test_bpc": r.test_bpc}
            for r in self.evidence.runs
        ]
        return {"files": [str(f) for f in self.files], "claims": claims, "runs": runs, "left_out": left_out}


def build(folders: Sequence[Path], out: Path, progress: Progress | None = None) -> Report:
    """Write the report on these campaigns into the folder `out`."""
    progress = progress or Progress()
    evidence = collect(folders)
    if not evidence.runs:
        lost = f" ({len(evidence.left_out)} left out: {evidence.left_out[0][1]})" if evidence.left_out else ""
        raise DataError(f"{' and '.join(map(str, folders))}: no run to report on{lost}")
    make_output(out)
    progress.say(f"{len(evidence.runs)} runs, {len(evidence.left_out)} left out")
    text = corpus.load(None)
    texts = texts_of(evidence, text, progress)
    watched = gates_of(evidence, text, progress)
    judged = []
    for done, claim in enumerate(claims := load_claims()):
        progress.show_if_due(0.5 * done / len(claims), f"judging claim {claim.id} by {len(evidence.runs)} runs")
        judged.append((claim, claim.verdicts(evidence, texts)))
    document = compose(evidence, judged, texts, watched, out / FIGURES, progress)
    files = [out / MARKDOWN, out / PAGE]
    try:
        files[0].write_text(markdown(document, out), encoding="utf-8")
        files[1].write_text(page(document), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror}") from error
    drawn = [block.file for block in document.blocks if isinstance(block, Figure)]
    return Report(evidence, judged, document, [*files, *drawn, *(file.with_suffix(".png") for file in drawn)])


def compose(
    evidence: Evidence,
    judged: list[tuple[Claim, list[Verdict]]],
    texts: Texts,
    watched: dict[str, Any] | None,
    folder: Path,
    progress: Progress,
) -> Document:
    document = Document(TITLE)
    drawing = lambda done, what: progress.show_if_due(done, f"drawing {what}")  # noqa: E731
    can_draw = drawable()
    document.add(*chapters.opening(evidence, judged))
    if not can_draw:
        document.add(Paragraph(NO_DRAWING))
    document.add(*chapters.claims(judged))
    document.add(*(gain_figure(evidence, judged, folder) if can_draw else []))
    document.add(Heading("Language modelling"), tables.table1(), *tables.table2(evidence), *tables.table3(evidence))
    document.add(Heading("The ablation"), *tables.ablation(evidence))
    drawing(0.55, "learning curves")
    document.add(Heading("Learning curves"))
    document.add(*(curve_figures(evidence, folder) if can_draw else []))
    document.add(*place_blocks(evidence, folder, can_draw))
    document.add(*chapters.texts(texts))
    document.add(Heading("Program evaluation"))
    for group in tables.program_groups(evidence):
        drawing(0.75, f"heat maps, {group_words(group)}")
        document.add(tables.programs(evidence, group), *grid_blocks(evidence, group, folder, can_draw))
    drawing(0.9, "gates")
    if watched is not None:
        document.add(*chapters.gates(watched), *(gate_figures(watched, folder) if can_draw else []))
    document.add(*chapters.commands(), *chapters.environment(evidence), *chapters.left_out(evidence))
    return document


def drawable() -> bool:
    try:
        figures.heatmap.drawing()
    except UsageError:
        LOG.warning(NO_DRAWING.replace("`", ""))
        return False
    return True


def named(folder: Path, *words: str) -> Path:
    """A stem for a figure's files."""
    return folder / re.sub(r"[^\w.]+", "-", "-".join(words).replace("'", ""))


def gain_figure(evidence: Evidence, judged: list[tuple[Claim, list[Verdict]]], folder: Path) -> list[Block]:
    """What the claims about bits per character come to, at a glance."""
    found = comparisons((claim for claim, _ in judged), evidence)
    if not found:
        return []
    stem = folder / "gains"
    forest.plot(found, stem)
    caption = (
        "What every comparison of two rows in bits per character comes to, by settings and budget, the longest "
        f"training first; lines are 95 % intervals, paired by seed. Beyond {forest.LINEAR} the axis is logarithmic."
    )
    return [Figure(stem.with_suffix(".svg"), caption, "gains of one row over another, ours and the paper's")]


def curve_figures(evidence: Evidence, folder: Path) -> list[Block]:
    blocks: list[Block] = []
    for group in tables.text_groups(evidence):
        for unit, title in reversed(UNITS.items()):
            stem = named(folder, "curves", unit, *group)
            drawn = figures.learning_curves(evidence, group, unit, stem)
            if not drawn:
                continue
            caption = f"{title}, {group_words(group)}: {drawn}"
            blocks.append(Figure(stem.with_name(f"{stem.name}.svg"), caption, f"learning curves, {title}"))
    return blocks


def place_blocks(evidence: Evidence, folder: Path, can_draw: bool) -> list[Block]:
    """Where in the test text the difference between gated feedback and the stack lies."""
    found = places.places(evidence)
    if not found:
        return []
    blocks: list[Block] = [Heading("Where in the text"), places.table(found)]
    if can_draw:
        stem = folder / "places"
        places_plot.plot(found, stem)
        caption = (
            f"The same, for every {places.STRETCH:,} characters: bars are means of the seeds, dots the seeds, "
            "the broken line is the median of the bars."
        )
        blocks.append(Figure(stem.with_suffix(".svg"), caption, "gains of gated feedback along the test split"))
    return blocks


def grid_blocks(evidence: Evidence, group: Group, folder: Path, can_draw: bool) -> list[Block]:
    """Heat maps and McNemar's test of the first seed that stack and gated feedback both have."""
    found: list[tuple[str, Run, Run]] = []
    for unit in ("lstm", "gru"):
        pairs = grids.pairs(f"programs-gated-{unit}", f"programs-stacked-{unit}", evidence, group)
        found += [(unit, stacked, gated) for gated, stacked in pairs[:1]]
    if not found:
        return [Paragraph("No stack and gated feedback of one unit have been evaluated yet.", note=True)]
    blocks: list[Block] = []
    for metric, name in (("symbol_accuracy", "heatmap"), ("exact_match", "heatmap-answers")) if can_draw else ():
        stem = named(folder, name, *group)
        words = figures.heat_maps(found, metric, stem).replace("\n", ". ")
        title = figures.heatmap.METRICS[metric].capitalize()
        said = "The counts are of the intervals that hatch the cells; the table below has McNemar's test"
        caption = f"{title}. {words}.{f' {said}.' if metric == 'exact_match' else ''}"
        blocks.append(Figure(stem.with_name(f"{stem.name}.svg"), caption, "heat maps by nesting and length"))
    tests = [chapters.answers(UNITS[unit], grids.whole_answers(gated, stacked)) for unit, stacked, gated in found]
    return [*blocks, *tests]


def gate_figures(watched: dict[str, Any], folder: Path) -> list[Block]:
    histograms, around = folder / "gates", folder / "gates-around"
    figures.gate_histograms(watched, histograms)
    figures.gates_around(watched, around)
    return [
        Figure(
            histograms.with_suffix(".svg"),
            "How often a gate has which value. i → j: what layer j hears of layer i. The line is the mean.",
            "histograms of the gates",
        ),
        Figure(
            around.with_suffix(".svg"),
            "The mean of every gate around what happens in the text (how often in brackets); the thin line is its mean "
            "over all characters. At 0 the character itself is read: `<`, the end of the line, the first `[`.",
            "gates around tags, line ends and links",
        ),
    ]


def gates_of(evidence: Evidence, text: corpus.Corpus, progress: Progress) -> dict[str, Any] | None:
    """Those of the gated model of the longest training that has its weights, or of the model in the package."""
    gated = [r for group in evidence.groups for r in evidence.runs if r.group == group and r.row.startswith("gated-")]
    run = next((run for run in gated if run.model), None)
    try:
        place = find(run.folder if run else PACKAGED)
    except DataError:
        return None
    sha256 = sha256_of(file_in(place, MODEL))
    for folder in evidence.folders:
        if (folder / gates.FILE).exists():
            kept = gates.read(folder / gates.FILE)
            if kept["model_sha256"] == sha256:
                return kept
    name = f"{row_of(run)} ({evidence.name(run.folder)})" if run else f"the model in the package, {PACKAGED}"
    read = "enwik8's test split" if text.is_enwik8 else f"{text.name}, the last 5 %"
    seen = "" if text.is_enwik8 else " (which the model may have read in training)"
    measured = gates.measure(CharLM.from_pretrained(place), text.split("test").tobytes(), progress)
    document = {"model": name, "model_sha256": sha256, "text": f"{read}{seen}", **measured}
    try:
        gates.keep(evidence.folders[0], document)
    except OSError as error:
        LOG.warning(f"{gates.FILE} is not kept in {evidence.folders[0]}: {error.strerror}")
    return document


def row_of(run: Run) -> str:
    return f"{run.row}, {group_words(run.group)}, seed {run.seed}"
