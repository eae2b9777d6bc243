"""A search for settings: every recipe with every setting and every seed, as a list in YAML says.

    budget: 3M                                 # of each run, as `gfrnn reproduce --budget` takes it [the recipe's]
    seeds: [1, 2]                              # [1]
    options: {validate_chars: 250000}          # of every run: any option of gfrnn train
    recipes:
      gated-lstm: modern-gated-lstm            # a name, and its recipe, or its recipe with options
      feedback-gru: {recipe: modern-gated-gru, wiring: feedback}
    settings:
      usual: {}                                # a name, and its options
      quiet: {start: quiet, only: [gated-lstm]}    # for some of the recipes
      learning_rate: [4e-3, 8e-3]              # an option and its values: a setting each, called by its value
      late: {schedule: late, learning_rate: [4e-3, 8e-3]}    # late-4e-3 and late-8e-3

A run is in the folder NAME-SETTING, and with another seed than 1 in NAME-SETTING-seedN. No torch here.
"""

from __future__ import annotations

import itertools
import re
import reprlib
import shlex
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from gfrnn.campaign.plan import Budget, Planned, own_budget, typed
from gfrnn.errors import DataError, UsageError, nearest
from gfrnn.recipes import find
from gfrnn.storage.files import read_small
from gfrnn.training.config import BUDGET, Config

KEYS = ("budget", "seeds", "options", "recipes", "settings")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,60}")
ELSEWHERE = {"seed": "seeds", "data": "--data", **dict.fromkeys(BUDGET, "budget")}  # what says it instead
MOST = 10_000  # trials


@dataclass(frozen=True)
class Trial(Planned):
    """One run of a search. It is judged by the validation split: the test split is for what was chosen."""

    row: str = ""
    setting: str = ""
    wants_test: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"{self.row}-{self.setting}{'' if self.seed == 1 else f'-seed{self.seed}'}"

    def line(self, folder: Path) -> str:
        return shlex.join(["gfrnn", *self.train_words(folder)])


@dataclass(frozen=True)
class Setting:
    """Options under a name, for all recipes or `only` some; `ordered` is the option whose list it came from."""

    name: str
    options: Mapping[str, Any]
    only: tuple[str, ...] | None = None
    ordered: str = ""


@dataclass(frozen=True)
class Search:
    """What a list asks for."""

    rows: Mapping[str, str]  # name -> recipe
    settings: Sequence[Setting]
    seeds: Sequence[int]
    trials: Sequence[Trial]

    def at(self, row: str, setting: str) -> list[Trial]:
        return [trial for trial in self.trials if (trial.row, trial.setting) == (row, setting)]

    def is_edge(self, setting: Setting) -> bool:
        """Whether it is the first or the last of a list of numbers that rise or fall."""
        group = [s for s in self.settings if s.ordered and family(s) == family(setting)]
        values = [s.options[s.ordered] for s in group]
        if setting not in group or not all(isinstance(value, int | float) for value in values):
            return False
        steps = [b > a for a, b in itertools.pairwise(values) if a != b]
        in_order = len(steps) == len(values) - 1 and len(set(steps)) == 1
        return in_order and setting in (group[0], group[-1])


def family(setting: Setting) -> tuple[str, str]:
    """What the settings of one list share."""
    return setting.ordered, setting.name.removesuffix(shown(setting.options.get(setting.ordered)))


def shown(value: Any) -> str:
    """A value in the name of a folder, the same however it was typed.

    >>> [shown(value) for value in (0.008, 0.016, 0.5, 100, 2.0, True, None, "late")]
    ['8e-3', '1.6e-2', '0.5', '100', '2', 'true', 'null', 'late']
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return typed(value)
    if not 0 < abs(value) < 0.1:
        return f"{value:g}"
    digits, _, exponent = f"{value:.12e}".partition("e")
    return f"{float(digits):.12g}e{int(exponent)}"


def read(path: Path, names: Sequence[str] = (), more: Mapping[str, Any] | None = None) -> Search:
    """The search that a list asks for, of all recipes or of those with these names; `more` are options for all."""
    import yaml

    content = read_small(path, 1 << 20)
    try:
        values = yaml.safe_load(content)
    except (ValueError, OverflowError, yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{path} is no list of trials: {' '.join(str(error).split())}") from error
    try:
        return search_of(values, names, dict(more or {}))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def search_of(values: Any, names: Sequence[str], more: dict[str, Any]) -> Search:
    """From what the YAML holds."""
    if not isinstance(values, dict):
        raise UsageError(f"a list of trials is a mapping with the keys {', '.join(KEYS)}")
    for key in values:
        if key not in KEYS:
            raise UsageError(f"unknown key {reprlib.repr(key)}{nearest(str(key), KEYS)}")
    seeds = seeds_of(values.get("seeds", [1]))
    budget = None if values.get("budget") is None else Budget.parse(str(values["budget"]))
    shared = mapping(values.get("options") or {}, "options")
    rows = {name: row_of(name, entry) for name, entry in mapping(values.get("recipes"), "recipes").items()}
    settings = settings_of(mapping(values.get("settings") or {"usual": {}}, "settings"), rows)
    for name in names:
        if name not in rows:
            raise UsageError(f"it has no recipe called '{name}'{nearest(name, rows)}")
    trials: list[Trial] = []
    for seed, (row, (recipe, own)), setting in itertools.product(seeds, rows.items(), settings):
        if (names and row not in names) or (setting.only is not None and row not in setting.only):
            continue
        if len(trials) == MOST:
            raise UsageError(f"more than {MOST:,} runs")
        try:
            options = tuple({**shared, **own, **setting.options}.items())
            config = find(recipe).config
            converted = tuple((key, value_of(config, key, value)) for key, value in options)
            own_limits = budget or own_budget(find(recipe))
            trial = Trial(recipe, seed, own_limits, (*converted, *more.items()), row, setting.name)
            trial.config  # noqa: B018 - what makes no sense is refused before anything is trained
        except UsageError as error:
            raise UsageError(f"{row} with {setting.name}: {error}") from error
        trials.append(trial)
    refuse_twice([trial.name for trial in trials])
    if not trials:
        raise UsageError("no run is left: every setting is for other recipes only")
    kept = {row: recipe for row, (recipe, _) in rows.items() if not names or row in names}
    return Search(kept, [s for s in settings if any(t.setting == s.name for t in trials)], seeds, trials)


def mapping(values: Any, what: str) -> dict[str, Any]:
    if not isinstance(values, dict) or (not values and what != "options"):
        raise UsageError(f"{what} must be a mapping of names, got {reprlib.repr(values)[:80]}")
    return {shown(key): value for key, value in values.items()}


def named(name: str, what: str) -> str:
    if not NAME.fullmatch(name):
        raise UsageError(f"{what} '{name[:80]}' cannot be part of a folder's name: letters, digits and . _ + - can")
    return name


def seeds_of(values: Any) -> list[int]:
    if not isinstance(values, list) or not values or any(type(seed) is not int or seed < 0 for seed in values):
        raise UsageError(f"seeds must be a list of whole numbers like [1, 2], got {reprlib.repr(values)[:80]}")
    for seed in values:
        if values.count(seed) > 1:
            raise UsageError(f"seed {seed} is asked for twice: the same seed is the same run")
    return values


def row_of(name: str, entry: Any) -> tuple[str, dict[str, Any]]:
    """Its recipe, and the options beyond it."""
    named(name, "the recipe's name")
    options = {"recipe": entry} if isinstance(entry, str) else mapping(entry, f"recipes: {name}")
    recipe = options.pop("recipe", None)
    if not isinstance(recipe, str):
        raise UsageError(f"recipes: {name} names no recipe, like {name}: modern-gated-lstm")
    if find(recipe).config.task != "hutter":
        raise UsageError(f"recipes: {name}: {recipe} reads no text, and trials are compared in bits per character")
    return recipe, options


def settings_of(values: dict[str, Any], rows: Mapping[str, Any]) -> list[Setting]:
    found: list[Setting] = []
    for name, entry in values.items():
        # An option with its values stands for itself: the settings are called by the values alone.
        prefix, options = ("", {name: entry}) if isinstance(entry, list) else (name, mapping_or_empty(entry, name))
        only = options.pop("only", None)
        if only is not None and (not isinstance(only, list) or not only):
            raise UsageError(f"settings: {name}: only must be a list of the recipes' names")
        for row in only or ():
            if row not in rows:
                raise UsageError(f"settings: {name}: only: no recipe is called '{row}'{nearest(str(row), rows)}")
        lists = [key for key, value in options.items() if isinstance(value, list)]
        if len(lists) > 1:
            raise UsageError(f"settings: {name}: only one option may have a list of values, not {' and '.join(lists)}")
        ordered = lists[0] if lists else ""
        for value in options[ordered] if ordered else [None]:
            own = {**options, ordered: number_if_any(value)} if ordered else options
            parts = [prefix, shown(own[ordered]) if ordered else ""]
            called = named("-".join(part for part in parts if part), "the setting")
            found.append(Setting(called, own, None if only is None else tuple(only), ordered))
    refuse_twice([setting.name for setting in found])
    return found


def mapping_or_empty(entry: Any, name: str) -> dict[str, Any]:
    return {} if entry in ({}, None) else mapping(entry, f"settings: {name}")


def refuse_twice(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"two are called {name}: give one of them another name")
        seen.add(name)


def number_if_any(value: Any) -> Any:
    """YAML takes 8e-3, without a point, for a text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def value_of(config: Config, key: str, value: Any) -> Any:
    """The value of an option as its section wants it."""
    if key in ELSEWHERE:
        raise UsageError(f"{key}: {ELSEWHERE[key]} says that")
    for section in config.sections.values():
        if any(field.name == key for field in fields(section)):
            hint = typing.get_type_hints(type(section))[key]
            return number_if_any(value) if float in (hint, *typing.get_args(hint)) else value
    raise UsageError(f"gfrnn train has no option '{key}'{nearest(key, config.options)}")


def check_models(trials: Sequence[Trial]) -> None:
    """Refuse what only the model itself can refuse, like a start for feedback that a stack does not have."""
    from gfrnn.models import CharLM
    from gfrnn.training import optim

    seen = set()
    for trial in trials:
        config = trial.config
        if (config.model, config.optimizer) in seen:
            continue
        seen.add((config.model, config.optimizer))
        try:
            options = {field.name: getattr(config.model, field.name) for field in fields(config.model)}
            optim.split(config.optimizer, dict(CharLM(**options, device="meta").named_parameters()))
        except (ValueError, DataError) as error:
            raise UsageError(f"{trial.row} with {trial.setting}: {error}") from error
