"""One timestep of a text model as a function of tensors: what is exported, and what an export is measured by.

B rows, T time, V symbols; the state is h (L, B, H), and c like it for an LSTM.
"""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gfrnn.errors import DataError, UsageError
from gfrnn.models.char_lm import CharLM
from gfrnn.models.pretrained import find, read_config

TOLERANCE = 1e-5
EXAMPLE_ROWS = 2  # those of the example that is traced; another number is checked
CHECKED_ROWS = 3
STEPS = (1,) * 24
SHORT_SEQUENCES = (1, 2, 3) * 4

# Symbols and the parts of the state -> logits and the parts of the new state.
Function = Callable[..., Sequence[Tensor]]


class Step(nn.Module):
    """symbol (B,), state -> logits (B, V), new state: flat tensors only."""

    def __init__(self, model: CharLM) -> None:
        super().__init__()
        self.model = model.eval()

    def forward(self, symbol: Tensor, h: Tensor, c: Tensor | None = None) -> tuple[Tensor, ...]:
        features, state = self.model.layer.step(symbol, h if c is None else (h, c))
        return (self.model.head(features), *parts(state))

    def example(self) -> tuple[Tensor, ...]:
        return (torch.zeros(EXAMPLE_ROWS, dtype=torch.int64), *parts(self.model.layer.initial_state(EXAMPLE_ROWS)))

    def state_names(self) -> list[str]:
        return ["h", "c"][: len(self.example()) - 1]

    def dynamic_shapes(self) -> dict[str, Any]:
        """Any number of rows."""
        rows = torch.export.Dim("batch")
        return {"symbol": {0: rows}, **{name: {1: rows} for name in self.state_names()}}


def parts(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def load(run: str | Path, format: str) -> CharLM:
    """The text model of a run folder, a model folder, or the package."""
    if read_config(find(run)).get("architecture") == "Seq2Seq":
        raise UsageError(f"{run} is a program model, and {format} is written for text models only")
    return CharLM.from_pretrained(run)


def check(name: str, model: CharLM, function: Function, lengths: Sequence[int] = STEPS) -> float:
    """How far `function` is from `model`, which computes in float64; a `DataError` beyond TOLERANCE.

    `function` is called for so many symbols at a time as `lengths` says (with a step: one by one, as STEPS says).
    Every call starts from the state that the model is in, since a recurrence multiplies rounding errors: after 24
    random symbols in a row two float32 programs, torch's own among them, may be 1e-4 apart.
    """
    truth, draws = copy.deepcopy(model).double().eval(), torch.Generator().manual_seed(0)
    symbols = torch.randint(len(model.vocabulary), (sum(lengths), CHECKED_ROWS), generator=draws)
    start = model.layer.initial_state(CHECKED_ROWS)
    state, worst = parts(start), 0.0
    with torch.no_grad():
        for some in symbols.split(list(lengths)):
            wide = tuple(part.double() for part in state)
            logits, new = truth(some, wide if isinstance(start, tuple) else wide[0])
            true = (logits[0] if lengths is STEPS else logits, *parts(new))
            found = function(some[0] if lengths is STEPS else some, *state)
            worst = max(worst, difference(found, true))
            state = tuple(part.to(state[0].dtype) for part in parts(new))
    if worst > TOLERANCE:
        raise DataError(f"{name} differs from the model by {worst:.1e}, more than {TOLERANCE:g}: nothing was written")
    return worst


def difference(found: Sequence[Tensor], true: Sequence[Tensor]) -> float:
    """The largest difference of any output, in parts of the largest number in that output, or of 1.

    Logits are sums of hundreds of terms: the order in which they are added shows more where they are larger.

    >>> difference([torch.tensor([20.1, 0.0])], [torch.tensor([20.0, 0.0])]) < 0.0051
    True
    """
    pairs = [(one.double(), other.double()) for one, other in zip(found, true, strict=True)]
    each = torch.stack([(one - other).abs().max() / other.abs().max().clamp(min=1) for one, other in pairs])
    return float(each.nan_to_num(torch.inf).max())
