"""Python program evaluation: the paper's four encoder-decoders, and modern twins.

The paper shows its results as heat maps only, so there is no number to aim at: the claim is that gated feedback beats
the stack in most cells of the grid, the more so the deeper and longer the programs.
"""

from collections.abc import Iterator
from typing import Any

from gfrnn.recipes import Recipe, modern
from gfrnn.tasks.programs.config import ProgramsConfig, Seq2SeqConfig
from gfrnn.training.config import Config, OptimizerConfig, RunConfig

# name, unit, wiring, units per layer (the same for both wirings, in the paper too), parameters
TABLE: tuple[tuple[str, Any, Any, int, int], ...] = (
    ("stacked-gru", "gru", "stacked", 230, 1_711_903),
    ("gated-gru", "gru", "gated", 230, 3_631_987),
    ("stacked-lstm", "lstm", "stacked", 200, 1_742_213),
    ("gated-lstm", "lstm", "gated", 200, 3_675_917),
)
CHARACTERS = 65  # of a program and its answer, on average
ABOUT = {"stacked": "conventional stacks of 3", "gated": "gated feedback"}


def recipes() -> Iterator[Recipe]:
    for name, unit, wiring, units, parameters in TABLE:
        model = Seq2SeqConfig(unit=unit, wiring=wiring, hidden_size=units)
        about = f"programs, {ABOUT[wiring]}, {unit}"
        for config, how in (
            (paper(f"programs-{name}", model), "the paper's settings"),
            (twin(f"modern-programs-{name}", model), "3 epochs, modern settings"),
        ):
            count = round(config.options["programs"] * (config.run.epochs or 0))
            characters = CHARACTERS * count
            yield Recipe(config, f"{about}: {how}", parameters, characters, metric="heat maps", programs=count)


def paper(name: str, model: Seq2SeqConfig) -> Config:
    """320,000 programs, minibatch 128, Adam with both betas 0.99, 30 epochs, validated and saved after each.

    The paper is silent on clipping; without any, one bad minibatch can end a run, and a norm of 5 is seldom reached.
    """
    optimizer = OptimizerConfig(
        optimizer="adam", learning_rate=1e-3, momentum=0.99, decay=0.99, epsilon=1e-8, clip=5.0, explode=None
    )
    run = RunConfig(epochs=30.0, validate_every=2500, patience=5)
    return Config(name, "programs", ProgramsConfig(), model, optimizer, run)


def twin(name: str, model: Seq2SeqConfig) -> Config:
    """Smaller minibatches, for 3 epochs; docs/decisions.md has the runs behind it, which were shorter."""
    data, run = ProgramsConfig(rows=64), RunConfig(epochs=3.0, precision=modern.PRECISION)
    return Config(name, "programs", data, modern.started(model), modern.optimizer(learning_rate=3e-3), run)
