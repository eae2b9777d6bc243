"""Program evaluation as the training loop sees it (the protocol is in training/loop.py)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gfrnn.errors import UsageError
from gfrnn.models.program_batch import Batch, collate
from gfrnn.models.seq2seq import Seq2Seq
from gfrnn.tasks.growth import NEVER
from gfrnn.tasks.programs.config import ProgramsConfig, Seq2SeqConfig
from gfrnn.tasks.programs.evaluation import measure, summary
from gfrnn.tasks.programs.generator import Program, stream
from gfrnn.tasks.programs.settings import Settings
from gfrnn.tasks.programs.training_data import TrainingPrograms
from gfrnn.tasks.world import World

SAMPLE = 2000  # training programs whose average sizes stand for all
VALIDATION_SEED = 0


class Programs:
    """Every update reads whole programs from the zero state; nothing is carried from one to the next."""

    name, metric, higher_is_better = "programs", "symbol_accuracy", True
    reads = "generated programs"
    growth = NEVER
    model_class = Seq2Seq

    def __init__(self, data: ProgramsConfig, model: Seq2SeqConfig, seed: int) -> None:
        self.data, self.model_config = data, model
        self.rows = self.data.rows
        self.epoch = self.data.programs / self.rows
        self.training = TrainingPrograms(self.data, seed)
        sample = [self.training.program(index) for index in self.training.sample(SAMPLE)]
        self.sample_sha256 = hashlib.sha256("\n\n".join(p.source for p in sample).encode()).hexdigest()
        self.target_symbols = sum(len(p.target) + 1 for p in sample) / len(sample)
        source_symbols = sum(len(p.source) for p in sample) / len(sample)
        self.characters = round(self.rows * (source_symbols + self.target_symbols))

    def build_model(self, seed: int) -> Seq2Seq:
        torch.manual_seed(seed)
        try:
            return Seq2Seq(**dataclasses.asdict(self.model_config))
        except ValueError as error:
            raise UsageError(str(error)) from error

    def batch(self, seed: int, step: int, rows: slice) -> Batch:
        assert seed == self.training.seed
        usual = self.training.usual_symbols(step) if self.training.ordered else self.target_symbols
        return collate(self.training.batch(step)[rows])._replace(usual_symbols=usual)

    def initial_state(self, model: Seq2Seq) -> None:
        return None

    def carried(self, state: Any, seed: int, step: int, rows: slice) -> None:
        return None

    def loss(self, model: Seq2Seq, batch: Batch, state: Any) -> tuple[Tensor, float, None]:
        """Every program counts as one of usual size, so that its weight does not depend on its minibatch."""
        nats = model.loss(batch)
        return nats.sum(), len(nats) * (batch.usual_symbols or self.target_symbols), None

    @cached_property
    def validation_programs(self) -> list[Program]:
        settings = Settings(self.data.max_length, self.data.max_nesting, literals=self.data.literals)
        return list(stream(VALIDATION_SEED, self.data.validate_programs, settings, "validation"))

    def validate(
        self, model: Seq2Seq, full: bool, tick: Callable[[], None], world: World | None = None
    ) -> dict[str, Any]:
        programs = self.validation_programs
        measured = summary(measure(model, programs, tick=lambda fraction: tick(), world=world or World()))
        return {"literals": self.data.literals, **measured}

    def validates_all(self) -> bool:
        return True

    def identity(self) -> dict[str, Any]:
        # Not said of ideal literals, whose runs may be older than the choice.
        literals = {} if self.data.literals == "ideal" else {"literals": self.data.literals}
        return {"programs": self.data.programs, "sample_sha256": self.sample_sha256, **literals}

    def notes(self) -> list[str]:
        if self.data.literals == "ideal":
            return []
        return ["literals as the original generator drew them, at most 2 ** 32: in training, validation and test cells"]

    def show(self, nats: float) -> str:
        return f"{nats:.3f} nats/symbol"
