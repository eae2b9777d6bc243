"""Which runs a table or a figure of the paper needs: a recipe, a seed and a budget each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gfrnn.errors import UsageError, nearest
from gfrnn.recipes import Recipe, find
from gfrnn.training.config import BUDGET as LIMITS
from gfrnn.training.config import Config

# what -> its rows: recipes without the prefix of their settings
ROWS: dict[str, tuple[str, ...]] = {
    "table1": (),  # sizes only: nothing is trained for it
    "table2": (
        *("single-tanh", "stacked-tanh", "gated-tanh"),
        *("single-gru", "stacked-gru", "gated-gru", "gated-own-gru", "gated-L-gru"),
        *("single-lstm", "stacked-lstm", "gated-lstm", "gated-own-lstm", "gated-L-lstm", "feedback-lstm"),
    ),
    "table3": ("large",),
    "curves": ("stacked-gru", "gated-gru", "gated-L-gru", "stacked-lstm", "gated-lstm", "gated-L-lstm"),
    "text": ("stacked-lstm", "gated-lstm"),
    "heatmaps": ("programs-stacked-lstm", "programs-gated-lstm", "programs-stacked-gru", "programs-gated-gru"),
    "ablation": ("stacked-lstm", "feedback-lstm", "gated-lstm"),
}
SETTINGS = ("modern", "paper")
WEEKS = ("table3",)  # of training: only when it is asked for by name
BUDGET = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(k|M|G)?\s*(epochs?|chars?|characters?)?", re.IGNORECASE)
SCALED = ("k", "M", "G")
SCALE = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
MOST_EPOCHS, MOST_CHARS = 10**4, 10**12  # a hundred times the paper's


@dataclass(frozen=True)
class Budget:
    """So many epochs or characters.

    >>> Budget.parse("0.5 epochs"), Budget.parse("10M")
    (Budget(epochs=0.5, chars=None), Budget(epochs=None, chars=10000000))
    """

    epochs: float | None = None
    chars: int | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        match = BUDGET.fullmatch(text.strip())
        number, scale, unit = (match[1], (match[2] or "").lower(), (match[3] or "").lower()) if match else ("", "", "")
        if not scale and not unit:
            raise UsageError(f"a budget is epochs or characters, like '1 epoch', '0.5epochs' or '10M', not {text!r}")
        if unit.startswith("epoch"):
            if scale:
                raise UsageError(f"a budget of epochs is a plain number, not {text!r}")
            budget = cls(epochs=float(number))
        else:
            budget = cls(chars=round(float(number) * SCALE[scale]))
        if not (budget.epochs or budget.chars):
            raise UsageError(f"a budget is more than nothing, not {text!r}")
        if (budget.epochs or 0) > MOST_EPOCHS or (budget.chars or 0) > MOST_CHARS:
            raise UsageError(f"a budget is at most {MOST_EPOCHS:,} epochs or {MOST_CHARS:,} characters, not {text!r}")
        return budget

    @property
    def words(self) -> list[str]:
        """As options of `gfrnn train`."""
        return ["--epochs", plain(self.epochs)] if self.epochs is not None else ["--chars", str(self.chars)]

    @property
    def spoken(self) -> str:
        """
        >>> Budget.parse("3M").spoken, Budget.parse("0.5 epochs").spoken
        ('3 M characters', '0.5 epochs')
        """
        number, unit = re.fullmatch(r"([\d.]+)(.*)", str(self)).groups()  # type: ignore[union-attr]
        return f"{number} {unit}{' characters' * (unit in SCALED)}".replace(" chars", " characters")

    @property
    def limits(self) -> dict[str, Any]:
        """As options of a configuration: these and no other."""
        return {**dict.fromkeys(LIMITS), "epochs": self.epochs, "chars": self.chars}

    def __str__(self) -> str:
        """In the name of a folder; `parse` reads it again.

        >>> [str(Budget.parse(text)) for text in ("1 epoch", "2.5 epochs", "10M", "1500 characters")]
        ['1epoch', '2.5epochs', '10M', '1500chars']
        """
        if self.epochs is not None:
            return f"{plain(self.epochs)}epoch{'' if self.epochs == 1 else 's'}"
        chars = self.chars or 0
        scale = next((name for name in reversed(SCALED) if chars % SCALE[name.lower()] == 0), "")
        return f"{chars // SCALE[scale.lower()]}{scale or 'chars'}"


def plain(number: float) -> str:
    """The shortest text that reads as this number, without a useless '.0'."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


@dataclass(frozen=True)
class Planned:
    """One run of a campaign; `wants_test` says whether it is scored on the test split, too."""

    recipe: str
    seed: int
    budget: Budget
    options: tuple[tuple[str, Any], ...] = ()  # beyond the recipe, as of `gfrnn train`
    wants_test: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Of its folder: runs of other budgets or seeds live beside it."""
        return f"{self.recipe}-{self.budget}-seed{self.seed}"

    @property
    def is_text(self) -> bool:
        return find(self.recipe).config.task == "hutter"

    @property
    def config(self) -> Config:
        """What `train_words` ask for."""
        return find(self.recipe).config.replace(seed=self.seed, **self.budget.limits, **dict(self.options))

    def train_words(self, folder: Path) -> list[str]:
        """`gfrnn` and what follows, so that the same words always mean the same run."""
        pairs = [(f"--{key.replace('_', '-')}", typed(value)) for key, value in self.options]
        more = [word for pair in pairs for word in pair]
        out = ["--out", str(folder / self.name)]
        return ["train", self.recipe, "--seed", str(self.seed), *self.budget.words, *more, *out]

    def eval_words(self, folder: Path) -> list[str]:
        return ["eval", str(folder / self.name), *(("--split", "test") if self.is_text else ())]

    def line(self, folder: Path) -> str:
        """For a shell: train, then evaluate."""
        train, evaluate = (["gfrnn", *words] for words in (self.train_words(folder), self.eval_words(folder)))
        return f"{shlex.join(train)} && {shlex.join(evaluate)}"


def typed(value: Any) -> str:
    """A value as one would type it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def recipe_of(row: str, settings: str) -> Recipe:
    """The recipe of a row: programs-gated-lstm, hutter-gated-lstm, modern-programs-gated-lstm, modern-gated-lstm.

    The large model has the paper's settings only.
    """
    if settings == "modern" and row != "large":
        return find(f"modern-{row}")
    return find(row if row.startswith("programs-") else f"hutter-{row}")


def chosen(whats: Sequence[str]) -> tuple[str, ...]:
    """What is meant: all but what takes weeks when nothing is named, or "all".

    >>> chosen(["curves", "text"]), "table3" in chosen(["all"]), "table3" in chosen(["all", "table3"])
    (('curves', 'text'), False, True)
    """
    known = (*ROWS, "all")
    for what in whats:
        if what not in known:
            raise UsageError(f"'{what}' is none of {', '.join(known)}{nearest(what, known)}")
    usual = [what for what in ROWS if what not in WEEKS] if "all" in whats or not whats else []
    return tuple(dict.fromkeys([*usual, *(what for what in whats if what != "all")]))


def plan(
    whats: Sequence[str],
    settings: str = "modern",
    seeds: Iterable[int] = (1,),
    budget: Budget | None = None,
    options: Mapping[str, Any] | None = None,
    own_options: Mapping[str, Mapping[str, Any]] | None = None,
    only: Sequence[str] = (),
) -> list[Planned]:
    """The runs that `whats` need, each once: all rows of the first seed before any of the second.

    `only` names rows or units, where not all are wanted. `options` are for every run whose recipe has them,
    `own_options` for those of a unit or, going before, of a row.
    """
    if settings not in SETTINGS:
        raise UsageError(f"settings are {' or '.join(SETTINGS)}, not {settings!r}")
    seeds = list(seeds)
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise UsageError(f"seed {seed} is asked for twice: the same seed is the same run")
    rows = dict.fromkeys(row for what in chosen(whats) for row in ROWS[what])
    units = {row: recipe_of(row, settings).config.options["unit"] for row in rows}
    particular = dict(own_options or {})
    for name in (*only, *(particular if rows else ())):
        if name not in {*rows, *units.values()}:
            hint = nearest(name, {*rows, *units.values()})
            raise UsageError(f"'{name}' is neither a row nor a unit of this campaign{hint}")
    if only:
        rows = dict.fromkeys(row for row in rows if row in only or units[row] in only)
    recipes = [recipe_of(row, settings) for row in rows]
    given = dict(options or {})
    own = {}
    for row, recipe in zip(rows, recipes, strict=True):
        wanted = {**given, **particular.get(units[row], {}), **particular.get(row, {})}
        own[recipe.name] = tuple((k, v) for k, v in wanted.items() if k in recipe.config.options)
    known = {key for recipe in recipes for key in recipe.config.options} - {"seed", *LIMITS}
    for key in (key for wanted in (given, *particular.values()) for key in wanted):
        if recipes and key not in known:
            raise UsageError(f"no run of this campaign has an option '{key}' to set{nearest(key, known)}")
    runs = [Planned(r.name, seed, budget or own_budget(r), own[r.name]) for seed in seeds for r in recipes]
    for run in runs:
        run.config  # noqa: B018 - what makes no sense is refused before anything is trained
    return runs


def own_budget(recipe: Recipe) -> Budget:
    """What the recipe itself asks for."""
    run = recipe.config.run
    return Budget(epochs=run.epochs, chars=None if run.epochs is not None else run.chars)
