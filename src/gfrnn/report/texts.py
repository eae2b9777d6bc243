"""Texts written by the gated and the stacked LSTM: the paper's two prompts, and prompts drawn from the test split.

They are written once and kept with the campaign as texts.json, with the checksums of the models that wrote them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gfrnn.errors import DataError
from gfrnn.models.char_lm import CharLM
from gfrnn.models.generation import Sampling, stream
from gfrnn.progress import Progress
from gfrnn.report.evidence import Evidence
from gfrnn.report.finished import Group, Run
from gfrnn.report.statistics import Interval, bootstrap_rates
from gfrnn.report.tags import closed_and_opened
from gfrnn.storage.files import read_small, replace_file
from gfrnn.tasks.text.corpus import Corpus

FILE = "texts.json"
ROWS = ("stacked-lstm", "gated-lstm")
# The paper's: how each begins and ends, in the test split.
SEEDS = ((b"[[pl:Icon]]", b"    <revi"), (b"    <title>Inherence relation</title>", b"<username>Ro"))
SAMPLES, SHOWN = 10, 300  # of each seed and model; characters
PROMPTS, READ, WRITTEN, LUCK = 200, 500, 1000, 15  # drawn prompts; characters read and written; the random seed
LIMIT = 64 << 20


@dataclass(frozen=True)
class Texts:
    """What was written, or why nothing was."""

    why_none: str = ""
    group: Group | None = None
    document: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.document)

    @property
    def seeds(self) -> list[dict[str, Any]]:
        """The paper's prompts with ten samples of each model."""
        return list(self.document["seeds"])

    def counts(self, row: str) -> np.ndarray:
        """Tags closed and opened in what a model wrote after each drawn prompt: (prompts, 2)."""
        return np.array([closed_and_opened(drawn[row]) for drawn in self.document["drawn"]])

    def difference(self, better: str, worse: str) -> tuple[Interval | None, dict[str, tuple[int, int]]]:
        """In the share of opened tags that are closed, paired by prompt; and both models' counts."""
        a, b = self.counts(better), self.counts(worse)
        rates = {row: (int(c[:, 0].sum()), int(c[:, 1].sum())) for row, c in ((better, a), (worse, b))}
        enough = all(opened for _, opened in rates.values())
        return bootstrap_rates(a, b) if enough else None, rates


def texts_of(evidence: Evidence, text: Corpus | None, progress: Progress | None = None) -> Texts:
    """Those kept with the campaign if they are of its models, else new ones where the weights and enwik8 are there."""
    pair = with_weights(evidence)
    for folder in evidence.folders:
        if (folder / FILE).exists():
            kept = read(folder / FILE)
            wrote = [kept["models"][row]["sha256"] for row in ROWS]
            if pair is None or wrote == [run.model_sha256 for run in pair]:
                return of_a_group(kept, evidence)
    if pair is None:
        return Texts(f"no {' and '.join(ROWS)} of one seed and budget whose weights are there")
    if text is None or not text.is_enwik8:
        return Texts("prompts are drawn from enwik8, which is not here: `gfrnn data --download` fetches it")
    document = written(pair, evidence, text.split("test").tobytes(), progress or Progress())
    document = {"text_sha256": text.sha256, **document}
    replace_file(evidence.folders[0] / FILE, (json.dumps(document, indent=1) + "\n").encode())
    return of_a_group(document, evidence)


def of_a_group(document: dict[str, Any], evidence: Evidence) -> Texts:
    """The texts, if the runs of the models that wrote them are there."""
    group = (document["group"][0], document["group"][1])
    for row in ROWS:
        run = evidence.of(row, group).get(document["seed"])
        wrote = document["models"][row]["sha256"]
        if run is None or (run.model_sha256 or run.scored_sha256 or wrote) != wrote:
            return Texts(f"the texts in {FILE} were written by a {row} that is not there")
    return Texts("", group, document)


def with_weights(evidence: Evidence) -> tuple[Run, Run] | None:
    """Both models of one group and seed, of the longest training."""
    for group in evidence.groups:
        first, second = (evidence.of(row, group) for row in ROWS)
        for seed in sorted(first.keys() & second.keys()):
            if first[seed].model and second[seed].model:
                return first[seed], second[seed]
    return None


def written(pair: tuple[Run, Run], evidence: Evidence, test: bytes, bar: Progress) -> dict[str, Any]:
    """The same prompts and the same luck for both."""
    models = {run.row: CharLM.from_pretrained(run.folder) for run in pair}
    starts = np.sort(np.random.default_rng(LUCK).choice(len(test) - READ, PROMPTS, replace=False)).tolist()
    seeds: list[dict[str, Any]] = [{"offset": begin, "prompt": readable(test[begin:end])} for begin, end in cuts(test)]
    drawn: list[dict[str, Any]] = [{"offset": start} for start in starts]
    total, done = len(models) * (len(seeds) + len(drawn)), 0
    for row, model in models.items():
        for seed, (begin, end) in zip(seeds, cuts(test), strict=True):
            seed[row] = [continued(model, test[begin:end], SHOWN, LUCK + k) for k in range(SAMPLES)]
            done += 1
        for number, prompt in enumerate(drawn):
            start = prompt["offset"]
            prompt[row] = continued(model, test[start : start + READ], WRITTEN, LUCK + number)
            done += 1
            bar.show_if_due(done / total, f"texts of {row}")
    about = {run.row: {"run": evidence.name(run.folder), "sha256": run.model_sha256} for run in pair}
    return {"group": list(pair[0].group), "seed": pair[0].seed, "models": about, "seeds": seeds, "drawn": drawn}


def cuts(test: bytes) -> list[tuple[int, int]]:
    """Where the paper's prompts begin and end."""
    found = []
    for begin, end in SEEDS:
        start = test.index(begin)
        found.append((start, test.index(end, start) + len(end)))
    return found


def continued(model: CharLM, prompt: bytes, characters: int, luck: int) -> str:
    return readable(b"".join(byte for (byte,) in stream(model, prompt, characters, Sampling(seed=luck))))


def readable(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def read(path: Path) -> dict[str, Any]:
    """A texts.json; a DataError says that it is none."""
    try:
        document: dict[str, Any] = json.loads(read_small(path, LIMIT))
        settings, budget = document["group"]
        texts = [t for part in document["seeds"] for row in ROWS for t in part[row]]
        texts += [part[row] for part in document["drawn"] for row in ROWS]
        texts += [settings, budget, *(document["models"][row]["sha256"] for row in ROWS)]
        texts += [seed["prompt"] for seed in document["seeds"]]
        if not all(isinstance(one, str) for one in texts) or not document["drawn"]:
            raise ValueError("its texts are no texts")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error} (removed, it is made again where the models are)") from error
    return document
