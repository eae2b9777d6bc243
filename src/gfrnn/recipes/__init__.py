"""What can be trained: each recipe is a complete configuration that carries the number it aims at."""

from dataclasses import dataclass

from gfrnn.config import Config
from gfrnn.errors import UsageError, nearest


@dataclass(frozen=True)
class Recipe:
    """A configuration, what it stands for, and what the paper reports for it."""

    config: Config
    about: str
    parameters: int
    paper: float | None = None  # the paper's number
    metric: str = "test BPC"

    @property
    def name(self) -> str:
        return self.config.recipe


def load() -> dict[str, Recipe]:
    """All recipes, by name."""
    from gfrnn.recipes import hutter, programs

    return {recipe.name: recipe for recipe in (*hutter.recipes(), *programs.recipes())}


def find(name: str) -> Recipe:
    recipes = load()
    if name not in recipes:
        raise UsageError(f"unknown recipe '{name}'{nearest(name, recipes)} (gfrnn recipes lists them)")
    return recipes[name]
