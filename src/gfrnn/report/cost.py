"""What a row that is not there would cost: the recipe's characters at a rate measured in the runs that are there."""

from __future__ import annotations

from dataclasses import dataclass

from gfrnn.campaign.estimate import work
from gfrnn.campaign.plan import recipe_of
from gfrnn.recipes import Recipe
from gfrnn.report.evidence import Evidence
from gfrnn.report.finished import Run
from gfrnn.training.plan import in_words


@dataclass(frozen=True)
class Cost:
    """Seconds of training, and how that is known."""

    recipe: Recipe
    seconds: float
    source: str

    @property
    def words(self) -> str:
        characters = f"{self.recipe.characters / 1e6:,.0f} M characters"
        years = self.seconds / 86_400 / 365.25
        time = f"{years:.1f} years" if years >= 2 else in_words(self.seconds)
        return f"`gfrnn train {self.recipe.name}` reads {characters}, which would take {time} ({self.source})"


def cost_of(row: str, evidence: Evidence, settings: str = "paper") -> Cost:
    """Of one run of a row as its recipe has it.

    The rate is that of the run nearest in work per character among those with the same minibatch, of those whose
    minutes count if there are any; without one, the pace that `gfrnn recipes` calculates with.
    """
    recipe = recipe_of(row, settings)
    config = recipe.config
    measured = [run for run in evidence.runs if run.seconds and run.characters and run.config.task == config.task]
    alike = [run for run in measured if minibatch(run) == (config.options["rows"], config.options.get("length"))]
    if not alike:
        return Cost(recipe, recipe.seconds, "on one core as fast as ours")
    alike = [run for run in alike if not run.clock] or alike
    own = work(config.task, config.model)
    near = min(alike, key=lambda run: (abs(work(run.config.task, run.config.model) - own), str(run.folder)))
    rate = near.characters / near.seconds * work(near.config.task, near.config.model) / own
    machine = f"{near.environment.get('threads', '?')} thread of {near.environment.get('cpu', 'an unknown CPU')}"
    source = (
        f"at {near.characters / near.seconds:,.0f} characters per second of {evidence.name(near.folder)} on {machine}"
    )
    busy = ", which had other work: less on one that has none" if near.clock else ""
    scaled = f"{source}, scaled by the multiplications per character{busy}"
    return Cost(recipe, recipe.characters / rate, scaled)


def minibatch(run: Run) -> tuple[int, int | None]:
    return run.config.options["rows"], run.config.options.get("length")
