"""What a run will do and how long that will probably take, said before it begins. No torch here."""

from typing import TYPE_CHECKING

from gfrnn.tasks import TASKS

if TYPE_CHECKING:
    from gfrnn.training.loop import Trainer

# Parameters x characters that one core trains a second with the fused op, measured: results/modern-gated-lstm (90 M
# characters in 129 minutes) and results/programs. Two cores are up to twice as fast; without the op it is a third.
PACE = 15e9
LONG = 3600.0  # seconds; of a longer run it is said how to shorten it


def expected_seconds(task: str, parameters: int, characters: float) -> float:
    """The training time on one core.

    >>> round(expected_seconds("hutter", 1_301_259, 90_000_000) / 60)
    130
    """
    return characters * parameters * TASKS[task].share / PACE


def in_words(seconds: float) -> str:
    """A duration to two digits.

    >>> [in_words(s) for s in (20, 420, 7800, 780_000, 36_000_000)]
    ['20 s', '7 min', '2.2 h', '9.0 days', '417 days']
    """
    for unit, size, enough in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 72)):
        if seconds < enough * size:
            amount = seconds / size
            return f"{amount:.1f} {unit}" if unit == "h" and amount < 10 else f"{amount:.0f} {unit}"
    days = seconds / 86_400
    return f"{days:.1f} days" if days < 10 else f"{days:,.0f} days"


def in_millions(count: float) -> str:
    """A count to three digits.

    >>> [in_millions(n) for n in (1_301_259, 320_000, 9e9)]
    ['1.30 M', '0.32 M', '9,000 M']
    """
    millions = count / 1e6
    return f"{millions:,.0f} M" if millions >= 100 else f"{millions:.3g} M" if millions >= 10 else f"{millions:.2f} M"


def plan(trainer: "Trainer", shorter: str = "") -> str:
    """One sentence: what is trained, on what, and for how long; `shorter` says what would be, if that is long."""
    config, task, budget = trainer.config, trainer.task, trainer.budget
    parameters = sum(p.numel() for p in trainer.parameters)
    model = f"{config.options['wiring']} {config.options['unit']} {config.options['num_layers']}x"
    what = f"{config.recipe}: {model}{config.options['hidden_size']}, {parameters:,} parameters, on {task.reads}"
    what += f", products in {config.run.precision}"
    limit = "" if budget.seconds is None else f"for {in_words(budget.seconds)}"
    if budget.updates is None:
        return f"{what}, {limit}"
    characters = task.growth.portions(budget.updates) * task.characters
    seconds = expected_seconds(config.task, parameters, characters)
    amount = f"{budget.updates:,} updates, {characters:,} characters"
    if budget.seconds is not None and budget.seconds < seconds:
        return f"{what}: {amount}, or {limit}"
    said = f"{what}: {amount}, about {in_words(seconds)} of updates if one core is as fast as ours"
    return f"{said} (shorter: {shorter})" if shorter and seconds > LONG else said
