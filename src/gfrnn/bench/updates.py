"""What the training loop adds to a bare training step: data, clipping, the optimizer, decisions, progress, the log."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gfrnn.bench.clock import Entry
from gfrnn.bench.contenders import batch, count
from gfrnn.bench.plan import RECIPE, Size
from gfrnn.bench.precision import ACTIONS
from gfrnn.progress import Progress
from gfrnn.recipes import find
from gfrnn.tasks.text.corpus import EXCERPT
from gfrnn.tasks.world import World
from gfrnn.training.checkpoint import Checkpoints
from gfrnn.training.config import Config
from gfrnn.training.loop import Trainer
from gfrnn.training.runlog import RunLog

BARE, WHOLE = "bare step", "whole update"


def group_name(size: Size, rows: int, length: int, precision: str) -> str:
    return f"{size}, {rows} x {length}, {precision}"


def steady(rows: int, length: int, size: Size, precision: str) -> Config:
    """The recipe for ever, with so small a learning rate that the weights stay: every round does the same work."""
    model = {"unit": size.unit, "num_layers": size.num_layers, "hidden_size": size.hidden_size}
    run = {"updates": 10**9, "epochs": None, "learning_rate": 1e-30, "precision": precision}
    return find(RECIPE).config.replace(data=EXCERPT, rows=rows, length=length, **model, **run)


@contextmanager
def entries(size: Size, rows: int, length: int, precision: str) -> Iterator[list[Entry]]:
    """A bare step and a whole update of the same trainer, which writes its log to a folder that is then deleted."""
    config = steady(rows, length, size, precision)
    with tempfile.TemporaryDirectory() as folder, closing(RunLog(Path(folder))) as log:
        run = Checkpoints(Path(folder))
        trainer = Trainer(config, config.build_task(), run, log, Progress(), World())
        trainer.model.train()
        ids, targets = batch(rows, length)

        def update() -> None:
            trainer.agree()
            trainer.update()
            if trainer.step % config.run.log_every == 0:
                trainer.record()

        def entry(name: str, act: Callable[[], None]) -> Entry:
            return Entry(name, act, characters=rows * length, parameters=count(trainer.model))

        yield [entry(BARE, lambda: ACTIONS[precision](trainer.model, ids, targets)), entry(WHOLE, update)]
