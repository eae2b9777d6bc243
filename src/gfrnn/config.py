"""What a training run is made of: four groups of options, in config.yaml, on the command line, and in recipes.

No torch here. A task brings two groups of its own (what it reads, and its model); SECTIONS lists them.
"""

import dataclasses
import importlib
from pathlib import Path
from typing import Any, Literal

from gfrnn.errors import DataError, UsageError, nearest
from gfrnn.options import Section, option


@dataclasses.dataclass(frozen=True)
class TextConfig(Section):
    """Language modelling: which text is read, and in what portions."""

    data: str | None = option(
        None, "the text: a file, raw, .gz or .zip, or the word excerpt (default: enwik8 if found, else the excerpt)"
    )
    rows: int = option(100, "texts read in parallel: the minibatch", least=1)
    length: int = option(100, "characters per row and update: truncated back-propagation", least=1)
    reset_every: int = option(100, "zero the hidden state before every n-th update; 0: never", least=0)
    unknown: Literal["learn", "refuse", "replace"] = option(
        "learn", "bytes that enwik8 does not have: learnt (the model knows all 256 then), refused, or read as '?'"
    )
    validate_chars: int = option(0, "validate on the first n characters of the split; 0: on all", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.validate_chars == 1:
            raise UsageError("validate_chars must be 0 or at least 2: one character alone cannot be scored")


@dataclasses.dataclass(frozen=True)
class LayerConfig(Section):
    """A model's layer and how its weights start; as it stands, that of the character model."""

    unit: Literal["tanh", "gru", "lstm"] = option("lstm", "recurrent unit")
    wiring: Literal["gated", "feedback", "stacked"] = option("gated", "who feeds whom")
    num_layers: int = option(3, "layers", least=1)
    hidden_size: int = option(140, "units per layer", least=1)
    gates_see: Literal["all", "own"] = option("all", "unit-wise gates read all layers' states, or their own")
    input_skip: bool = option(True, "the input feeds every layer")
    dropout: float = option(0.0, "between layers, in training", least=0)
    forget_bias: float = option(0.0, "initial bias of the LSTM's forget gates")
    input_std: float = option(0.0, "initial input weights normal(0, std); 0: the paper's uniform(-0.08, 0.08)", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropout > 0 and self.num_layers == 1:
            raise UsageError("dropout is between layers: it needs num_layers of at least 2")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Section):
    """How a gradient becomes an update."""

    optimizer: Literal["rmsprop", "adam"] = option("rmsprop", "RMSProp in Graves' form with momentum, or Adam")
    learning_rate: float = option(1e-3, "at its highest", above=0)
    momentum: float = option(0.9, "RMSProp's momentum, Adam's beta1", least=0)
    decay: float = option(0.95, "of the running squares; Adam's beta2", least=0)
    epsilon: float = option(1e-4, "RMSProp: inside the square root; Adam: outside", above=0)
    schedule: Literal["constant", "linear", "cosine"] = option("constant", "of the learning rate, to 0 over the budget")
    warmup: int = option(0, "updates over which the learning rate grows from 0", least=0)
    clip: float | None = option(None, "largest gradient norm; a longer gradient is scaled down", above=0)
    explode: float | None = option(
        100.0, "halve the learning rate when the gradient norm exceeds this many times its running median", above=1
    )
    ema: float = option(0.0, "decay of the averaged weights that are validated and kept; 0: no averaging", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("momentum", "decay", "ema"):
            if getattr(self, name) >= 1:
                raise UsageError(f"{name} must be less than 1, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True)
class RunConfig(Section):
    """How long, how often, and from which seed. The budget ends at whichever limit comes first."""

    updates: int | None = option(None, "budget in updates", least=1)
    epochs: float | None = option(None, "budget in passes through the training data", above=0)
    chars: int | None = option(None, "budget in training characters", least=1)
    minutes: float | None = option(None, "budget in minutes of wall-clock, validation included", above=0)
    seed: int = option(1, "of initial weights, order of the data, and dropout", least=0, most=2**32 - 1)
    validate_every: int = option(0, "updates between validations; 0: about 20 times in the budget", least=0)
    checkpoint_every: int = option(0, "updates between checkpoints; 0: every 5 minutes (and at validations)", least=0)
    keep: int = option(2, "checkpoints to keep besides the best", least=1)
    patience: int = option(0, "stop after so many validations without improvement; 0: never", least=0)
    log_every: int = option(50, "updates per training record in metrics.jsonl", least=1)

    @property
    def budget(self) -> dict[str, float]:
        limits = {name: getattr(self, name) for name in BUDGET}
        return {name: limit for name, limit in limits.items() if limit is not None}


BUDGET = ("updates", "epochs", "chars", "minutes")

# task -> "module:class" of its own two groups of options. They are imported only when the task is used.
SECTIONS = {
    "hutter": ("gfrnn.config:TextConfig", "gfrnn.config:LayerConfig"),
    "programs": ("gfrnn.tasks.programs.config:ProgramsConfig", "gfrnn.tasks.programs.config:Seq2SeqConfig"),
}
# task -> "module:class" that trains it (see training/loop.py for the protocol)
TASKS = {
    "hutter": "gfrnn.tasks.hutter:Hutter",
    "programs": "gfrnn.tasks.programs.task:Programs",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """A complete training run."""

    recipe: str
    task: str
    data: Section
    model: Section
    optimizer: OptimizerConfig = OptimizerConfig()
    run: RunConfig = RunConfig()

    @property
    def sections(self) -> dict[str, Section]:
        return {name: getattr(self, name) for name in ("data", "model", "optimizer", "run")}

    def replace(self, **options: Any) -> "Config":
        """With some options changed, each found in the section that has it.

        >>> config = Config("mine", "hutter", TextConfig(), LayerConfig())
        >>> config.replace(hidden_size=64, updates=10).model.hidden_size
        64
        """
        owner = {f.name: name for name, part in self.sections.items() for f in dataclasses.fields(part)}
        changes: dict[str, dict[str, Any]] = {}
        for key, value in options.items():
            if key not in owner:
                raise UsageError(f"unknown option '{key}'{nearest(key, owner)}")
            changes.setdefault(owner[key], {})[key] = value
        parts: dict[str, Any] = {name: dataclasses.replace(getattr(self, name), **new) for name, new in changes.items()}
        return dataclasses.replace(self, **parts)

    def to_mapping(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def options(self) -> dict[str, Any]:
        """Every option of every section, flat."""
        return {key: value for part in self.sections.values() for key, value in dataclasses.asdict(part).items()}

    def save(self, path: Path) -> None:
        import yaml

        from gfrnn.files import replace_file

        replace_file(path, yaml.safe_dump(self.to_mapping(), sort_keys=False).encode())

    @classmethod
    def load(cls, path: Path) -> "Config":
        """From config.yaml. Nothing in the file can execute code."""
        import yaml

        from gfrnn.files import read_small

        content = read_small(path, 1 << 16)
        try:
            values = yaml.safe_load(content)
        except (ValueError, OverflowError, yaml.YAMLError, RecursionError) as error:
            raise DataError(f"{path} cannot be read as a configuration: {error}") from error
        if not isinstance(values, dict) or not isinstance(values.get("task"), str) or values["task"] not in SECTIONS:
            raise DataError(f"{path} is no run's configuration: its task is none of {', '.join(SECTIONS)}")
        if not isinstance(values.get("recipe"), str):
            raise DataError(f"{path} is no run's configuration: its recipe is no text")
        try:
            data, model = (load_class(name) for name in SECTIONS[values["task"]])
            return cls(
                recipe=values["recipe"],
                task=values["task"],
                data=data.from_mapping(values.get("data"), f"{path}: data"),
                model=model.from_mapping(values.get("model"), f"{path}: model"),
                optimizer=OptimizerConfig.from_mapping(values.get("optimizer"), f"{path}: optimizer"),
                run=RunConfig.from_mapping(values.get("run"), f"{path}: run"),
            )
        except UsageError as error:
            raise DataError(str(error)) from error


def load_class(name: str) -> Any:
    module, attribute = name.split(":")
    return getattr(importlib.import_module(module), attribute)
