"""What can be trained: each recipe is a complete configuration that carries the number it aims at."""

import functools
from dataclasses import dataclass

from gfrnn.errors import UsageError, nearest
from gfrnn.training.config import Config
from gfrnn.training.plan import expected_seconds


@dataclass(frozen=True)
class Recipe:
    """A configuration, what it stands for, and what the paper reports for it."""

    config: Config
    about: str
    parameters: int
    characters: int  # that it reads in all
    paper: float | None = None  # the paper's number
    metric: str = "test BPC"
    programs: int | None = None  # that it reads in all, of the second task

    @property
    def name(self) -> str:
        return self.config.recipe

    @property
    def seconds(self) -> float:
        """An estimate of its training time on one core."""
        return expected_seconds(self.config.task, self.parameters, self.characters)


@functools.cache
def load() -> dict[str, Recipe]:
    """All recipes, by name."""
    from gfrnn.recipes import hutter, programs

    return {recipe.name: recipe for recipe in (*hutter.recipes(), *programs.recipes())}


def find(name: str) -> Recipe:
    """The recipe of that name, or a `UsageError` with the nearest there is."""
    recipes = load()
    if name not in recipes:
        raise UsageError(f"unknown recipe '{name}'{nearest(name, recipes)} (gfrnn recipes lists them)")
    return recipes[name]
