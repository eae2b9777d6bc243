"""One run as a report sees it: what its own files say.

It is named by its row (gated-lstm), its settings (modern or the paper's, and in what it departs from the recipe), its
budget and its seed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gfrnn.campaign.plan import Budget, own_budget, plain
from gfrnn.campaign.runs import last_checkpoint
from gfrnn.errors import DataError
from gfrnn.recipes import Recipe, find
from gfrnn.storage.files import read_small, sha256_of
from gfrnn.storage.run_folder import ENVIRONMENT, GRID, MODEL, blocks_name, file_in, model_inside
from gfrnn.tasks.programs.grid import read_report
from gfrnn.tasks.text import blocks
from gfrnn.tasks.text.corpus import ENWIK8_BYTES, ENWIK8_SHA256
from gfrnn.training.config import BUDGET, Config
from gfrnn.training.run import FREE

CLOCK = "clock.txt"  # in a run's folder, or the one it is in: why its minutes say nothing of it
TEST = "test.json"  # what `gfrnn eval --split test --json` printed, of runs that keep no blocks
# What may differ from the recipe without making another experiment of it: how long, which seed, where the text is,
# what is validated on, and what is written. The bytes a model could learn matter to texts other than enwik8 only.
OF_NO_MATTER = FREE | {*BUDGET, "seed", "unknown", "validate_chars", "validate_programs"}
RATE = "learning_rate"
Group = tuple[str, str]


@dataclass(frozen=True)
class Run:
    """One finished or unfinished training, read once."""

    folder: Path
    config: Config
    history: list[dict[str, Any]] = field(repr=False)
    rate_of_its_row: bool = False  # its rivals have other learning rates, each row one of its own; see evidence.py

    @property
    def recipe(self) -> Recipe:
        return find(self.config.recipe)

    @cached_property
    def departures(self) -> dict[str, Any]:
        """Options that are not the recipe's and make it another experiment."""
        here, there = self.config.options, self.recipe.config.options
        found = {key: here[key] for key in here if key not in OF_NO_MATTER and here[key] != there[key]}
        return found | ({"init": self.config.init.model} if self.config.init else {})

    @property
    def settings(self) -> str:
        own = "modern" if self.config.recipe.startswith("modern-") else "paper"
        words = [
            departure_words(key, value)
            for key, value in self.departures.items()
            if not (key == RATE and self.rate_of_its_row)
        ]
        return ", ".join([own, *words, *(["a learning rate for each row"] if self.rate_of_its_row else [])])

    @property
    def row(self) -> str:
        """The recipe without its settings: gated-lstm, programs-gated-lstm."""
        return self.config.recipe.removeprefix("modern-").removeprefix("hutter-")

    @property
    def precision(self) -> str:
        """Of the factors of its matrix products, in training."""
        return self.config.run.precision

    @property
    def is_text(self) -> bool:
        return self.config.task == "hutter"

    @property
    def seed(self) -> int:
        return self.config.run.seed

    @property
    def budget(self) -> str:
        limits = self.config.run.budget
        said = [
            str(Budget(**{unit: limit})) if unit in ("epochs", "chars") else f"{plain(limit)} {unit}"  # type: ignore[arg-type]
            for unit, limit in limits.items()
        ]
        return ", ".join([*said, *(["extended"] if self.config.earlier else [])])

    @cached_property
    def group(self) -> Group:
        """Runs are compared within one of these only."""
        return self.settings, self.budget

    @property
    def alone_is_enough(self) -> bool:
        """Whether it is a row of a table even while no other row is there: the recipe as it stands."""
        return not self.departures and self.budget == str(own_budget(self.recipe))

    @property
    def validations(self) -> list[dict[str, Any]]:
        return [record for record in self.history if record["kind"] == "valid"]

    @property
    def seconds(self) -> float:
        return float(self.validations[-1].get("seconds", 0.0)) if self.validations else 0.0

    @cached_property
    def clock(self) -> str:
        """Why its minutes do not compare, if its folder says so: at equal characters a busy machine is no matter."""
        notes = [place / CLOCK for place in (self.folder, self.folder.parent) if (place / CLOCK).exists()]
        return " ".join(read_small(notes[0], 1 << 10).decode("utf-8", "replace").split()) if notes else ""

    @property
    def characters(self) -> int:
        return int(self.validations[-1].get("characters", 0)) if self.validations else 0

    @property
    def parameters(self) -> int | None:
        found = (record.get("parameters") for record in self.history if record["kind"] == "start")
        return next(found, None) or (None if self.departures else self.recipe.parameters)

    @property
    def valid_bpc(self) -> float | None:
        """Of the whole validation split, where the log has it."""
        final = [record["bpc"] for record in self.history if record["kind"] == "final" and "bpc" in record]
        return final[-1] if final else None

    @cached_property
    def blocks(self) -> blocks.Blocks | None:
        return blocks.read(self.folder, "test") if (self.folder / blocks_name("test")).exists() else None

    @cached_property
    def test_bpc(self) -> float | None:
        if self.blocks is not None:
            return self.blocks.bpc
        if not (self.folder / TEST).exists():
            return None
        document = json.loads(read_small(self.folder / TEST))
        whole = document.get("text") == "enwik8" and document.get("characters") == ENWIK8_BYTES // 20
        if document.get("split") != "test" or not whole or not isinstance(document.get("bpc"), float):
            raise DataError(f"{self.folder / TEST} is no result of `gfrnn eval --split test --json` on enwik8")
        return float(document["bpc"])

    @cached_property
    def text_sha256(self) -> str | None:
        """Of the text that it learnt from or was scored on, where that is known."""
        if self.blocks is not None:
            return self.blocks.origin.text_sha256
        return self.checkpoint.get("identity", {}).get("sha256") or (ENWIK8_SHA256 if self.test_bpc else None)

    @cached_property
    def checkpoint(self) -> dict[str, Any]:
        return last_checkpoint(self.folder)

    @property
    def finished(self) -> bool:
        """Whether the budget is used up; of a run without checkpoints, whether it was judged at its end."""
        if self.checkpoint:
            return self.checkpoint.get("done") is True
        return self.test_bpc is not None or self.grid is not None or self.valid_bpc is not None or self.used_up

    @property
    def used_up(self) -> bool:
        """Whether the log reaches the end of the budget, where that can be seen without the text."""
        last: dict[str, Any] = self.validations[-1] if self.validations else {}
        options = self.config.options
        reached = {
            "updates": last.get("step", 0),
            "chars": last.get("characters", 0),
            "minutes": last.get("seconds", 0.0) / 60,
            "epochs": 0.0 if self.is_text else last.get("step", 0) * options["rows"] / options["programs"],
        }
        return any(reached[unit] >= limit for unit, limit in self.config.run.budget.items())

    @property
    def model(self) -> Path | None:
        """The folder of its weights, where they were kept."""
        return model_inside(self.folder)

    @cached_property
    def model_sha256(self) -> str | None:
        return None if self.model is None else sha256_of(file_in(self.model, MODEL))

    @property
    def scored_sha256(self) -> str | None:
        """Of the weights that were evaluated."""
        return self.blocks.origin.model_sha256 if self.blocks else self.grid["model_sha256"] if self.grid else None

    @cached_property
    def grid(self) -> dict[str, Any] | None:
        return read_report(self.folder / GRID) if (self.folder / GRID).exists() else None

    @cached_property
    def environment(self) -> dict[str, Any]:
        if not (self.folder / ENVIRONMENT).exists():
            return {}
        document = json.loads(read_small(self.folder / ENVIRONMENT))
        return document if isinstance(document, dict) else {}


def departure_words(option: str, value: Any) -> str:
    """
    >>> [departure_words(*pair) for pair in (("normalise", False), ("learning_rate", 0.004))]
    ['not normalised', 'learning rate 0.004']
    """
    if option == "normalise":
        return "normalised" if value else "not normalised"
    return f"{option.replace('_', ' ')} {value}"
