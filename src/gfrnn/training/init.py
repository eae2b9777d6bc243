"""What training starts with: fresh weights, or those of a saved model, whose architecture the recipe then adopts."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gfrnn.errors import DataError, UsageError
from gfrnn.models.char_lm import LAYER_OPTIONS
from gfrnn.models.config import OF_TRAINING
from gfrnn.models.pretrained import Pretrained, find, read_config
from gfrnn.storage.files import sha256_of
from gfrnn.storage.run_folder import MODEL, model_inside
from gfrnn.tasks import TASKS
from gfrnn.training.config import Config, Init


def adopt(config: Config, name: str, given: set[str]) -> tuple[Config, str]:
    """`config` with the architecture of the saved model `name`, and in words what that changes of the recipe.

    An option the user typed (`given`) must agree with the model.
    """
    folder, kind = find(name), model_class(config)
    found = read_config(folder).get("architecture")
    if found != kind.__name__:
        raise UsageError(f"--init {name} is a {found}, but {config.recipe} trains a {kind.__name__}")
    theirs = kind.from_pretrained(folder).config
    fixed = [key for key in LAYER_OPTIONS if key not in config.options and theirs[key] != LAYER_OPTIONS[key]]
    if fixed:
        raise UsageError(f"--init {name} has {fixed[0]} {theirs[fixed[0]]}, and no recipe can train such a model")
    options = {field.name for field in dataclasses.fields(config.model)} - OF_TRAINING
    changed = {key: theirs[key] for key in config.options if key in options and theirs[key] != config.options[key]}
    refused = [f"{key} {value}, not {config.options[key]}" for key, value in changed.items() if key in given]
    if refused:
        raise UsageError(f"--init {name} has {'; '.join(refused)}: its architecture is kept, leave such options away")
    symbols = bytes(theirs["vocabulary"]).hex() if "vocabulary" in theirs else None
    origin = Init(lasting(name), sha256_of(folder / MODEL), symbols)
    words = ", ".join(f"{key} {value}" for key, value in changed.items())
    return dataclasses.replace(config.replace(**changed), init=origin), words


def model_class(config: Config) -> Any:
    return TASKS[config.task].load("task").model_class


def lasting(name: str) -> str:
    """The name of a model as config.yaml keeps it, which is read from other folders too."""
    return name if model_inside(Path(name)) is None else str(Path(name).absolute())


def check_same(init: Init | None, name: str, out: Path) -> None:
    """Refuse to continue a run that started from another model than `name`, which need not be there any more."""
    if init is None or init.model not in (name, str(Path(name).absolute())):
        began = "without --init" if init is None else f"with --init {init.model}"
        raise UsageError(f"{out} was started {began}, not with --init {name}: choose another --out")


def load(config: Config) -> Pretrained | None:
    """The model that a new run starts from, if it starts from one."""
    if config.init is None:
        return None
    folder = find(config.init.model)
    if sha256_of(folder / MODEL) != config.init.sha256:
        raise DataError(f"{folder / MODEL} changed while the run was started: start it again")
    model: Pretrained = model_class(config).from_pretrained(folder)
    return model


def build(task: Any, seed: int, start: Pretrained | None, device: torch.device) -> Any:
    """The model a task is trained with: freshly initialised (on the CPU, to the same bits everywhere), or `start`."""
    with one_thread():
        model = task.build_model(seed)
    if start is not None:
        model.start_from(start)
    return model.to(device)


@contextmanager
def one_thread() -> Iterator[None]:
    """With one thread. Orthogonal matrices come from LAPACK, whose last bits depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
