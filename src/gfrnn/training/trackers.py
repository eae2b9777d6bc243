"""Experiment trackers that are told what metrics.jsonl is told. None is needed, and none can stop a training."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from gfrnn.progress import LOG

Warn = Callable[[str], None]
TRACKERS = ("tensorboard", "trackio", "wandb")  # each has the name of its package


class Tracker(Protocol):
    def tell(self, values: dict[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run folder, under tensorboard/."""

    def __init__(self, run: Path, config: dict[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(run / "tensorboard"))

    def tell(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class Runs:
    """wandb, and trackio, which is called like it. Offline: nothing leaves the machine unless the user sends it."""

    def __init__(self, package: str, run: Path, config: dict[str, Any]) -> None:
        self.module = importlib.import_module(package)
        where = {"dir": str(run), "mode": "offline"} if package == "wandb" else {}
        self.module.init(project="gfrnn", name=run.name, config=config, **where)

    def tell(self, values: dict[str, float], step: int) -> None:
        self.module.log(values, step=step)

    def close(self) -> None:
        self.module.finish()


def start(name: str, run: Path, config: dict[str, Any]) -> Tracker:
    return TensorBoard(run, config) if name == "tensorboard" else Runs(name, run, config)


class Trackers:
    """Those asked for that work. One that fails is left out from then on, and that is said once.

    They start with the first record: a run that is finished already has nothing to tell.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        run: Path = Path(),
        config: dict[str, Any] | None = None,
        warn: Warn = LOG.warning,
    ) -> None:
        self.waiting, self.working = list(dict.fromkeys(names)), dict[str, Tracker]()
        self.run, self.config, self.warn = run, config or {}, warn

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """The numbers of one record, as kind/name."""
        numbers = {f"{kind}/{name}": value for name, value in values.items() if type(value) in (int, float)}
        while self.waiting:
            self.begin(self.waiting.pop(0))
        for name, tracker in list(self.working.items()) if numbers else []:
            try:
                tracker.tell(numbers, step)
            except Exception as error:
                self.left_out(name, error)

    def begin(self, name: str) -> None:
        try:
            self.working[name] = start(name, self.run, self.config)
        except ImportError as error:
            self.warn(f"--log {name}: {error}; pip install {name} (training goes on without it)")
        except Exception as error:
            self.left_out(name, error)

    def close(self) -> None:
        for name, tracker in list(self.working.items()):
            try:
                tracker.close()
            except Exception as error:
                self.left_out(name, error)

    def left_out(self, name: str, error: Exception) -> None:
        self.working.pop(name, None)
        said = " ".join(f"{type(error).__name__}: {error}".split())
        self.warn(f"--log {name} failed ({said}): training goes on without it")
