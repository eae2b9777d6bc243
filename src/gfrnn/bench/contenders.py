"""The contenders by name: our backends ("cpu", "manual", "reference"), "loop", and peers such as "nn.LSTM 3x228"."""

import re

import torch
from torch import Tensor, nn

from gfrnn import ops
from gfrnn.bench.accounting import nearest_size, parameters, torch_parameters
from gfrnn.bench.loop import HandLoop
from gfrnn.bench.plan import NAMED_PEER, VOCABULARY, Size
from gfrnn.bench.torch_models import KINDS, TorchLM
from gfrnn.models.char_lm import CharLM

LOOP = "loop"
SEED = 1


def our_model(size: Size, backend: str = "reference") -> CharLM:
    """Every parameter drawn from SEED.

    Biases too: where they are 0, a mistake with them would not show. Weights are scaled by their fan-in, so that no
    step multiplies rounding errors and one tolerance can judge any number of steps.
    """
    generator = torch.Generator().manual_seed(SEED)
    with torch.device("meta"):
        model = CharLM(size.unit, size.hidden_size, size.num_layers, backend=backend)
    model = model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            std = 0.6 if parameter.dim() == 1 else parameter.shape[1] ** -0.5
            parameter.normal_(std=std, generator=generator)
    return model


def build(name: str, size: Size) -> nn.Module:
    """The contender `name` of the model `size`; those of one size (but for the peers) hold the same weights."""
    if name in ops.BACKENDS:
        return our_model(size, name)
    if name == LOOP:
        return HandLoop(our_model(size))
    peer = re.fullmatch(r"nn\.(\w+) (\d+)x(\d+)", name)
    unit = next((unit for unit, kind in KINDS.items() if peer and kind.__name__ == peer[1]), None)
    if peer is None or unit is None:
        raise ValueError(f"no contender is called {name!r}")
    torch.manual_seed(SEED)
    return TorchLM(unit, int(peer[2]), int(peer[3]))


def peer_name(unit: str, num_layers: int, hidden_size: int) -> str:
    return f"nn.{KINDS[unit].__name__} {num_layers}x{hidden_size}"


def equal_units(size: Size) -> str:
    return peer_name(size.unit, size.num_layers, size.hidden_size)


def equal_parameters(size: Size) -> str:
    """The peer whose number of parameters is nearest."""
    unit, L = size.unit, size.num_layers
    return peer_name(unit, L, nearest_size(parameters(size), lambda H: torch_parameters(unit, L, H)))


def named_peers(size: Size) -> list[str]:
    """The peer that a target names."""
    return [peer_name(size.unit, size.num_layers, NAMED_PEER[size.unit])] if size.unit in NAMED_PEER else []


def batch(rows: int, steps: int) -> tuple[Tensor, Tensor]:
    """Symbols (T, B) and those that follow, always the same."""
    text = torch.randint(0, VOCABULARY, (steps + 1, rows), generator=torch.Generator().manual_seed(SEED))
    return text[:-1].contiguous(), text[1:].contiguous()


def cost(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    """The mean cost of a character; a CharLM returns its state too."""
    loss = model.loss(ids, targets)  # type: ignore[operator]
    return loss[0] if isinstance(loss, tuple) else loss


def train_step(model: nn.Module, ids: Tensor, targets: Tensor) -> None:
    """Forward, softmax cross-entropy and backward: a whole training step but for the optimizer."""
    model.zero_grad(set_to_none=True)
    cost(model, ids, targets).backward()


@torch.no_grad()
def forward(model: nn.Module, ids: Tensor, targets: Tensor) -> None:
    """The cost of every character, nothing kept for a backward."""
    cost(model, ids, targets)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
