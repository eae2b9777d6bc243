"""The program task's two groups of options."""

import dataclasses
from typing import Literal

from gfrnn.models.config import LayerConfig
from gfrnn.sections import Section, option
from gfrnn.tasks.programs.settings import Settings


@dataclasses.dataclass(frozen=True)
class ProgramsConfig(Section):
    """Program evaluation: which programs are read, and in what portions."""

    programs: int = option(320_000, "training programs: an epoch", least=1)
    rows: int = option(128, "programs per update: the minibatch", least=1)
    max_length: int = option(10, "literals go up to 10 ** length; length is at most this", least=1)
    max_nesting: int = option(5, "operations in a program, at most", least=1)
    curriculum: Literal["baseline", "naive", "mix", "combined"] = option("mix", "how hardness is drawn")
    literals: Literal["ideal", "original"] = option(
        "ideal", "uniform up to 10 ** length, or of 32 bits as in the original generator: at most 2 ** 32"
    )
    pool: int = option(32, "minibatches that are sorted by length together; 1: no sorting", least=1)
    data_seed: int = option(1, "which training programs (the run's seed only orders them)", least=0)
    validate_programs: int = option(2000, "validation programs", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settings()

    def settings(self) -> Settings:
        """What the generator is asked for; refuses what is out of range."""
        return Settings(self.max_length, self.max_nesting, self.curriculum, span=self.programs, literals=self.literals)


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig(LayerConfig):
    """The encoder-decoder: its layers (both alike) and how its weights start."""

    num_layers: int = option(3, "layers of the encoder and of the decoder", least=1)
    hidden_size: int = option(200, "units per layer", least=1)
