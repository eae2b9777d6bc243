"""What the modern twins of both tasks share; docs/decisions.md has the runs behind it."""

import dataclasses

from gfrnn.models.config import LayerConfig
from gfrnn.training.config import OptimizerConfig

# Products in bfloat16 where the CPU has an instruction for them: results/bfloat16 says that models learn as well.
PRECISION = "auto"


def optimizer(learning_rate: float) -> OptimizerConfig:
    """Adam, clipped, with a learning rate that falls to 0 over the budget."""
    return OptimizerConfig(
        optimizer="adam",
        learning_rate=learning_rate,
        momentum=0.9,
        decay=0.99,
        epsilon=1e-8,
        schedule="linear",
        warmup=100,
        clip=1.0,
        explode=None,
    )


def started(model: LayerConfig) -> LayerConfig:
    """The same model with input weights that speak up: a one-hot input has a fan-in of 1."""
    return dataclasses.replace(model, input_std=0.5, forget_bias=1.0 if model.unit == "lstm" else 0.0)
