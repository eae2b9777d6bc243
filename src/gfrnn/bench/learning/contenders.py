"""Who takes part: what each is, how it is built, and how it reads the text."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from gfrnn.bench.learning.min_gru import MinGRU
from gfrnn.bench.learning.torch_lstm import TorchLSTM
from gfrnn.bench.learning.transformer import Transformer
from gfrnn.bench.plan import VOCABULARY
from gfrnn.models.char_lm import CharLM

SYMBOLS = VOCABULARY
CARRIED = "everything: state carried on"


@dataclass(frozen=True)
class Contender:
    """A model with `nats(ids, targets, state)`, read in minibatches of `rows` x `length`."""

    name: str
    about: str
    build: Callable[[], nn.Module]
    rows: int = 16
    length: int = 50
    context: int | None = None  # what a scored character sees at most; None: state is carried from the text's beginning

    @property
    def sees(self) -> str:
        """What a scored character has before it, in words."""
        return CARRIED if self.context is None else f"{self.context // 2} to {self.context} characters"


CONTENDERS = (
    Contender(
        "gf-lstm",
        "gated-feedback LSTM 3x140 with the paper's skips, normalised",
        lambda: CharLM("lstm", 140, 3, input_std=0.5, forget_bias=1.0, normalise=True),
    ),
    Contender("lstm", "torch.nn.LSTM 3x224", lambda: TorchLSTM(SYMBOLS, 224, 3)),
    Contender("mingru", "minGRU, 5 blocks of width 200", lambda: MinGRU(SYMBOLS, 200, 5)),
    Contender(
        "transformer",
        "causal transformer, 6 blocks of width 128",
        lambda: Transformer(SYMBOLS, 128, 6, context=256),
        rows=4,
        length=256,
        context=256,
    ),
)
