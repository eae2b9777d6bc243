"""Choosing how a model goes on learning: on the validation split, never on the test split; kept in dynamic.json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfrnn.errors import DataError, NonFinite
from gfrnn.storage.files import make_folder, read_small, replace_file
from gfrnn.storage.run_folder import DYNAMIC
from gfrnn.storage.tensorfile import pack_json, unpack_json
from gfrnn.tasks.text.dynamic import Settings

# The values tried first, one option after the other, each with the best of those before; docs/decisions.md has why.
LEARNING_RATES = {"rms": (5e-4, 1e-3, 2e-3), "sgd": (0.05, 0.1, 0.2, 0.4)}
DECAYS = (0.003, 0.0, 0.001)
BLOCKS = (50, 25, 100)
LEAST_BLOCK = 25  # a step takes its time however short the block: shorter ones are for who asks for them
FIRST = 100_000  # characters of the validation split that values are chosen on, unless told otherwise


@dataclass(frozen=True)
class Choice:
    """What was tried on the beginning of a validation split with one model, and what was best."""

    text_sha256: str
    model_sha256: str
    characters: int  # of the validation split, from its beginning
    static_bpc: float
    tried: list[dict[str, Any]]  # settings and bpc (None: it diverged), in the order of trying

    @property
    def best(self) -> dict[str, Any]:
        """Settings and bpc of the best; the earlier of equals."""
        found = [trial for trial in self.tried if trial["bpc"] is not None]
        if not found:
            raise DataError("with none of the values tried the model kept its way: give a smaller --learning-rate")
        return min(found, key=lambda trial: float(trial["bpc"]))

    @property
    def settings(self) -> Settings:
        return settings_of(self.best)


def settings_of(mapping: dict[str, Any]) -> Settings:
    names = [field.name for field in dataclasses.fields(Settings)]
    return Settings(**{name: mapping[name] for name in names})


def search(score: Callable[[Settings], float], fixed: dict[str, Any]) -> list[dict[str, Any]]:
    """Try values one option after the other, each beside the best of the others so far; what is `fixed` stays.

    `score` gives the bits per character with some settings. A best at the end of its list is followed, by halves or
    doubles, until it gets worse. Nothing is tried twice. The rule is rms unless it is fixed.
    """
    tried: dict[Settings, float | None] = {}

    def best_of(candidates: list[Settings]) -> Settings:
        for settings in candidates:
            if settings not in tried:
                try:
                    tried[settings] = score(settings)
                except NonFinite:
                    tried[settings] = None
        return min(candidates, key=lambda settings: math.inf if (bpc := tried[settings]) is None else bpc)

    rule = fixed.get("rule", "rms")
    best = dataclasses.replace(Settings(rule, LEARNING_RATES[rule][0], BLOCKS[0], DECAYS[0]), **fixed)
    options: dict[str, Any] = {"learning_rate": LEARNING_RATES[rule], "decay": DECAYS, "block": BLOCKS}
    for name, values in options.items():
        if name not in fixed:
            best = best_of([dataclasses.replace(best, **{name: value}) for value in values])
            while (value := beyond(name, getattr(best, name), values)) is not None:
                values = (*values, value)
                best = best_of([best, dataclasses.replace(best, **{name: value})])
    best_of([best])
    return [{**settings.to_mapping(), "bpc": bpc} for settings, bpc in tried.items()]


def beyond(name: str, best: Any, values: Sequence[Any]) -> Any:
    """The next value to try if the best is at an end of those tried, or None.

    >>> [beyond("learning_rate", best, (1e-3, 2e-3, 4e-3)) for best in (1e-3, 2e-3, 4e-3)]
    [0.0005, None, 0.008]
    >>> beyond("block", 100, (50, 25, 100)), beyond("block", 25, (50, 25, 100)), beyond("decay", 0.0, (0.003, 0.0))
    (200, None, None)
    """
    if best == max(values):
        return best * 2 if name != "decay" or best <= 0.5 else None
    further = best // 2 if isinstance(best, int) else best / 2
    return further if best == min(values) and further > (LEAST_BLOCK - 1 if name == "block" else 0) else None


def keep(folder: Path, choice: Choice) -> Path:
    """Write a choice into a folder; a model that is there stays as it is."""
    path = folder / DYNAMIC
    make_folder(folder)
    replace_file(path, pack_json({**dataclasses.asdict(choice), "split": "valid", "chosen": choice.best}))
    return path


def read(folder: Path) -> Choice | None:
    """The choice kept in a folder, if one is."""
    path = folder / DYNAMIC
    if not path.exists():
        return None
    document = unpack_json(read_small(path), path)
    try:
        choice = Choice(**{field.name: document[field.name] for field in dataclasses.fields(Choice)})
        settings_of(document["chosen"])
        if document["chosen"] != choice.best or not isinstance(choice.model_sha256, str):
            raise ValueError("what it calls chosen is not the best of what it tried")
        return choice
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {type(error).__name__} {error}") from error
