"""Who takes part: what each is, how it is built, how it reads the text, and how it multiplies."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from gfrnn.bench import probe
from gfrnn.bench.learning.min_gru import MinGRU
from gfrnn.bench.learning.torch_lstm import TorchLSTM
from gfrnn.bench.learning.transformer import Transformer
from gfrnn.bench.plan import VOCABULARY
from gfrnn.models.char_lm import CharLM
from gfrnn.models.precision import precisely, resolve

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
    precision: str = "float32"  # of products, while it learns; it is scored in float32

    @property
    def sees(self) -> str:
        """What a scored character has before it, in words."""
        return CARRIED if self.context is None else f"{self.context // 2} to {self.context} characters"


def rounding(contender: Contender) -> Contender:
    """The same, learning with products in bfloat16."""
    name, about = f"{contender.name}-bfloat16", f"{contender.about}, learning in bfloat16"
    return replace(contender, name=name, about=about, precision="bfloat16")


PLAIN = (
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
CONTENDERS = tuple(variant for contender in PLAIN for variant in (contender, rounding(contender)))


def why_not(contender: Contender) -> str:
    """Why it cannot learn here, or nothing. A copy of this process tries it, and may die of it."""
    if contender.precision == "float32":
        return ""

    def update() -> None:
        model, ids = contender.build(), torch.zeros(contender.length + 1, contender.rows, dtype=torch.long)
        with precisely(contender.precision, model):
            nats, _ = model.nats(ids[:-1], ids[1:])  # type: ignore[operator]
        nats.mean().backward()

    return probe.why_not(update)


def unless_named() -> list[Contender]:
    """Who takes part when nobody is named: each once, rounding to bfloat16 where the CPU has an instruction for it, as
    minutes are what is equal and nobody would learn at half of the speed."""
    wanted, names = resolve("auto"), {contender.name for contender in CONTENDERS}
    return [contender for contender in CONTENDERS if contender.precision == wanted or sibling(contender) not in names]


def sibling(contender: Contender) -> str:
    """The name of the same in the other precision.

    >>> [sibling(contender) for contender in CONTENDERS[:2]]
    ['gf-lstm-bfloat16', 'gf-lstm']
    """
    rounded = contender.precision == "bfloat16"
    return contender.name.removesuffix("-bfloat16") if rounded else f"{contender.name}-bfloat16"
