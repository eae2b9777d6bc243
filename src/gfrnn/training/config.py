"""What a training run is made of: four groups of options, in config.yaml, on the command line, and in recipes.

No torch here. A task brings two groups of its own (what it reads, and its model); tasks/__init__.py lists them.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from gfrnn.errors import DataError, UsageError, nearest
from gfrnn.names import PRECISIONS
from gfrnn.sections import Section, option
from gfrnn.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Section):
    """How a gradient becomes an update."""

    optimizer: Literal["rmsprop", "adam"] = option("rmsprop", "RMSProp in Graves' form with momentum, or Adam")
    learning_rate: float = option(1e-3, "at its highest", above=0)
    momentum: float = option(0.9, "RMSProp's momentum, Adam's beta1", least=0)
    decay: float = option(0.95, "of the running squares; Adam's beta2", least=0)
    epsilon: float = option(1e-4, "RMSProp: inside the square root; Adam: outside", above=0)
    schedule: Literal["constant", "linear", "cosine", "late"] = option(
        "constant", "of the learning rate, to 0 over the budget; late: constant, then linear over its last decay_share"
    )
    decay_share: float = option(0.3, "part of the budget over which a late schedule falls to 0", above=0, most=1)
    warmup: int = option(0, "updates over which the learning rate grows from 0", least=0)
    clip: float | None = option(None, "largest gradient norm; a longer gradient is scaled down", above=0)
    explode: float | None = option(
        100.0, "halve the learning rate when the gradient norm exceeds this many times its running median", above=1
    )
    gate_learning_rate: float = option(1.0, "times the learning rate, for the global reset gates' weights", above=0)
    weight_decay: float = option(
        0.0,
        "decoupled, of the recurrent matrices (weight_hh, weight_fb): each shrinks by this x learning rate",
        least=0,
    )
    ema: float = option(0.0, "decay of the averaged weights that are validated and kept; 0: no averaging", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("momentum", "decay", "ema"):
            if getattr(self, name) >= 1:
                raise UsageError(f"{name} must be less than 1, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True)
class Limits(Section):
    """A budget. It ends at whichever limit comes first."""

    updates: int | None = option(None, "budget in updates", least=1)
    epochs: float | None = option(None, "budget in passes through the training data", above=0)
    chars: int | None = option(None, "budget in training characters", least=1)
    minutes: float | None = option(None, "budget in minutes of wall-clock, validation included", above=0)

    @property
    def budget(self) -> dict[str, float]:
        limits = {name: getattr(self, name) for name in BUDGET}
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def words(self) -> str:
        return ", ".join(f"{unit} {limit:,}" for unit, limit in self.budget.items())


BUDGET = tuple(field.name for field in dataclasses.fields(Limits))


@dataclasses.dataclass(frozen=True)
class Stage(Limits):
    """A budget that a run had before it was extended, and where the run ended with it."""

    ended: int = option(0, "updates", least=0)
    seconds: float = option(0.0, "of wall-clock", least=0)


@dataclasses.dataclass(frozen=True)
class RunConfig(Limits):
    """How long, how often, and from which seed."""

    precision: Literal[PRECISIONS] = option(  # type: ignore[valid-type]
        "float32", "of the factors of matrix products; auto: bfloat16 where the CPU has an instruction for it"
    )
    seed: int = option(1, "of initial weights, order of the data, and dropout", least=0, most=2**32 - 1)
    validate_every: int = option(0, "updates between validations; 0: about 20 times in the budget", least=0)
    checkpoint_every: int = option(0, "updates between checkpoints; 0: every 5 minutes (and at validations)", least=0)
    keep: int = option(2, "checkpoints to keep besides the best", least=1)
    patience: int = option(0, "stop after so many validations without improvement; 0: never", least=0)
    log_every: int = option(50, "updates per training record in metrics.jsonl", least=1)


@dataclasses.dataclass(frozen=True)
class Init(Section):
    """The saved model that a run started from. It is needed once: what it knew is in the checkpoints."""

    model: str = option("", "its folder, or its name in the package")
    sha256: str = option("", "of its weights")
    symbols: str | None = option(None, "the bytes that a text model knew, in hexadecimal")

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            symbols = b"?" if self.symbols is None else bytes.fromhex(self.symbols)
        except ValueError:
            symbols = b""
        if not symbols or len(set(symbols)) < len(symbols):
            raise UsageError("symbols must be one or more bytes in hexadecimal, each once")


@dataclasses.dataclass(frozen=True)
class Config:
    """A complete training run."""

    recipe: str
    task: str
    data: Section
    model: Section
    optimizer: OptimizerConfig = OptimizerConfig()
    run: RunConfig = RunConfig()
    earlier: tuple[Stage, ...] = ()  # the budgets before the one in `run`, each with its end
    init: Init | None = None

    @property
    def sections(self) -> dict[str, Section]:
        return {name: getattr(self, name) for name in ("data", "model", "optimizer", "run")}

    def replace(self, **options: Any) -> "Config":
        """With some options changed, each found in the section that has it.

        >>> config = Config("mine", "hutter", TASKS["hutter"].load("data")(), TASKS["hutter"].load("model")())
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

    def build_task(self) -> Any:
        """What training/loop.py trains: the task with these options."""
        known = {"known": bytes.fromhex(self.init.symbols)} if self.init and self.init.symbols else {}
        return TASKS[self.task].load("task")(self.data, self.model, self.run.seed, **known)

    def extended(self, budget: Limits, ended: int, seconds: float) -> "Config":
        """With a larger budget than the one this run came to the end of, after so many updates and seconds."""
        limits = {name: getattr(budget, name) for name in BUDGET}
        stage = Stage(**self.run.budget, ended=ended, seconds=seconds)  # type: ignore[arg-type]
        return dataclasses.replace(self.replace(**limits), earlier=(*self.earlier, stage))

    def to_mapping(self) -> dict[str, Any]:
        """As in config.yaml, which speaks of earlier budgets and of a saved model only where there are any."""
        values = dataclasses.asdict(self)
        earlier = [stage.budget | {"ended": stage.ended, "seconds": stage.seconds} for stage in self.earlier]
        seldom = {"earlier": earlier, "init": values["init"]}
        return {key: value for key, value in (values | seldom).items() if value or key not in seldom}

    @property
    def options(self) -> dict[str, Any]:
        """Every option of every section, flat."""
        return {key: value for part in self.sections.values() for key, value in dataclasses.asdict(part).items()}

    def save(self, path: Path) -> None:
        import yaml

        from gfrnn.storage.files import replace_file

        replace_file(path, yaml.safe_dump(self.to_mapping(), sort_keys=False).encode())

    @classmethod
    def load(cls, path: Path) -> "Config":
        """From config.yaml. Nothing in the file can execute code."""
        import yaml

        from gfrnn.storage.files import read_small

        content = read_small(path, 1 << 16)
        try:
            values = yaml.safe_load(content)
        except (ValueError, OverflowError, yaml.YAMLError, RecursionError) as error:
            raise DataError(f"{path} cannot be read as a configuration: {error}") from error
        return cls.from_mapping(values, str(path))

    @classmethod
    def from_mapping(cls, values: Any, where: str) -> "Config":
        """What `to_mapping` gave; `where` is for the message when it is something else."""
        if not isinstance(values, dict) or not isinstance(values.get("task"), str) or values["task"] not in TASKS:
            raise DataError(f"{where} is no run's configuration: its task is none of {', '.join(TASKS)}")
        if not isinstance(values.get("recipe"), str):
            raise DataError(f"{where} is no run's configuration: its recipe is no text")
        if not isinstance(values.get("earlier", []), list):
            raise DataError(f"{where}: earlier must be a list of budgets")
        try:
            task = TASKS[values["task"]]
            data, model = task.load("data"), task.load("model")
            return cls(
                recipe=values["recipe"],
                task=values["task"],
                data=data.from_mapping(values.get("data"), f"{where}: data"),
                model=model.from_mapping(values.get("model"), f"{where}: model"),
                optimizer=OptimizerConfig.from_mapping(values.get("optimizer"), f"{where}: optimizer"),
                run=RunConfig.from_mapping(values.get("run"), f"{where}: run"),
                earlier=tuple(Stage.from_mapping(stage, f"{where}: earlier") for stage in values.get("earlier", [])),
                init=Init.from_mapping(values["init"], f"{where}: init") if "init" in values else None,
            )
        except UsageError as error:
            raise DataError(str(error)) from error
