"""What can be learnt: one line for each task. Nothing of a task is imported before it is asked for."""

import importlib
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class TaskEntry:
    """Where a task's parts are, as "module:class": its two groups of options, and what training/loop.py trains.

    A character passes through `share` of the model's parameters: of an encoder and a decoder through one.
    """

    data: str
    model: str
    task: str
    share: float = 1.0

    def load(self, part: Literal["data", "model", "task"]) -> Any:
        module, _, name = getattr(self, part).partition(":")
        return getattr(importlib.import_module(f"gfrnn.{module}"), name)


TASKS = {
    "hutter": TaskEntry("tasks.text.config:TextConfig", "models.config:LayerConfig", "tasks.text.task:TextTask"),
    "programs": TaskEntry(
        "tasks.programs.config:ProgramsConfig",
        "tasks.programs.config:Seq2SeqConfig",
        "tasks.programs.task:Programs",
        share=0.5,
    ),
}
