"""What programs read of a torch.nn.RNN, GRU or LSTM besides calling it, under torch's names."""

from typing import Any

from torch import Tensor, nn

from gfrnn import parameters

MODES = {"tanh": "RNN_TANH", "gru": "GRU", "lstm": "LSTM"}


class TorchNames(nn.Module):
    """A layer's kind and its weights. They are to be read: a weight is changed in place, or by its own name."""

    unit: str

    @property
    def mode(self) -> str:
        return MODES.get(self.unit, self.unit.upper())

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """For each layer of the stack its weights, then its biases, as in torch; gates are a layer's last.

        >>> from gfrnn import GFLSTM
        >>> [[tuple(weight.shape) for weight in layer] for layer in GFLSTM(3, 2, wiring="stacked").all_weights]
        [[(8, 3), (8, 2), (8,)]]
        """
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _all_weights(self) -> list[list[str]]:
        layer: Any = self
        return [
            [f"{name}_l{j}" for name in parameters.shapes(layer.spec, layer.bias, j)] for j in range(layer.num_layers)
        ]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [weight for weights in self.all_weights for weight in weights]

    def flatten_parameters(self) -> None:
        """Does nothing; torch.nn.LSTM has it, so code that calls it keeps working."""
