"""How a model's layer is told on the command line and in config.yaml. No torch."""

import dataclasses
from typing import Literal

from gfrnn.errors import UsageError
from gfrnn.names import STARTS, UNITS, WIRINGS
from gfrnn.sections import Section, option

OF_TRAINING = {
    "dropout",
    "input_std",
    "start",
    "gate_bias_own",
    "gate_bias_other",
}  # those of no concern to weights that are there


@dataclasses.dataclass(frozen=True)
class LayerConfig(Section):
    """A model's layer and how its weights start; as it stands, that of the character model."""

    unit: Literal[UNITS] = option("lstm", "recurrent unit")  # type: ignore[valid-type]
    wiring: Literal[WIRINGS] = option("gated", "who feeds whom")  # type: ignore[valid-type]
    num_layers: int = option(3, "layers", least=1)
    hidden_size: int = option(140, "units per layer", least=1)
    gates_see: Literal["all", "own"] = option("all", "unit-wise gates read all layers' states, or their own")
    input_skip: bool = option(True, "the input feeds every layer")
    normalise: bool = option(
        False, "bring every gate's pre-activations to one size, with a learnt gain (not the paper's)"
    )
    dropout: float = option(0.0, "between layers, in training", least=0)
    forget_bias: float = option(0.0, "initial bias of an LSTM's forget gates")
    input_std: float = option(0.0, "initial input weights normal(0, std); 0: the paper's uniform(-0.08, 0.08)", least=0)
    start: Literal[STARTS] = option(  # type: ignore[valid-type]
        "paper",
        "initial feedback: every block orthogonal; all scaled by 1 / sqrt(layers); other layers' by 0.1 (quiet) or 0 "
        "(stack)",
    )
    gate_bias_own: float = option(0.0, "initial bias of a layer's global reset gate to its own past")
    gate_bias_other: float = option(0.0, "initial bias of the global reset gates to other layers' past")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropout > 0 and self.num_layers == 1:
            raise UsageError("dropout is between layers: it needs num_layers of at least 2")
