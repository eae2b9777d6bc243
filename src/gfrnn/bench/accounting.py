"""What a model needs: parameters, multiplications, bytes. B batch, T time, L layers, H units, V symbols, G gates."""

from collections.abc import Callable

from gfrnn.bench.plan import VOCABULARY, Size
from gfrnn.equations import UNITS

FLOAT = 4  # bytes


def multiply_adds(size: Size, V: int = VOCABULARY) -> int:
    """Multiply-adds of one character, forward: what no implementation of the equations can do without.

    recurrent  L (G H + L) L H      every layer's unit rows and L global gates, over all L*H of h*_{t-1}
    below      (L - 1) (G H + L) H  the same rows over h_t^{j-1}, for all layers but the first
    head       L H V                the softmax reads every layer

    A one-hot input is a look-up and counts nothing; neither do biases, the gating, and all that is pointwise.

    >>> multiply_adds(Size("lstm", 3, 140))
    953120
    """
    G, H, L = len(UNITS[size.unit].gates), size.hidden_size, size.num_layers
    recurrent = L * (G * H + L) * L * H
    below = (L - 1) * (G * H + L) * H
    return recurrent + below + L * H * V


def flops(size: Size, characters: int, training: bool, V: int = VOCABULARY) -> float:
    """Useful operations: 2 for a multiply-add forward; the backward needs each product twice more, so 6 in training."""
    return float((6 if training else 2) * multiply_adds(size, V) * characters)


def square_flops(n: int) -> float:
    """Operations of the product of two n x n matrices."""
    return 2.0 * n**3


def bytes_per_character(size: Size, V: int = VOCABULARY) -> int:
    """Weights that generating one character must read, in float32: all matrices, one column of the inputs', biases.

    >>> bytes_per_character(Size("lstm", 3, 140))
    3826812
    """
    rows = size.num_layers * (len(UNITS[size.unit].gates) * size.hidden_size + size.num_layers)
    column, biases = rows, rows + V
    return FLOAT * (multiply_adds(size, V) + column + biases)


def must_keep(size: Size, characters: int, V: int = VOCABULARY) -> int:
    """Bytes for the backward when every activation is kept once and nothing else: float32.

    Per layer h (which is a tanh unit's only activation), the unit's gates, an LSTM's c or a GRU's gated sum, and L
    global gates; and the V probabilities of the softmax.
    """
    G, H, L = len(UNITS[size.unit].gates), size.hidden_size, size.num_layers
    per_layer = (H if G == 1 else (G + 2) * H) + L
    return FLOAT * characters * (L * per_layer + V)


def parameters(size: Size, V: int = VOCABULARY) -> int:
    """Of the gated-feedback model with skips.

    >>> parameters(Size("lstm", 3, 140))
    1301259
    """
    G, H, L = len(UNITS[size.unit].gates), size.hidden_size, size.num_layers
    inputs = L * V + (L - 1) * H  # columns of all layers' W
    return (G * H + L) * (inputs + L * (L * H + 1)) + (L * H + 1) * V


def torch_parameters(unit: str, num_layers: int, hidden_size: int, V: int = VOCABULARY) -> int:
    """Of an embedding (V, H), a stacked torch.nn.RNN, GRU or LSTM (two biases each), and a softmax over its last layer.

    >>> torch_parameters("lstm", 3, 228)
    1346773
    """
    G, H = len(UNITS[unit].gates), hidden_size
    return V * H + num_layers * (G * H * 2 * H + 2 * G * H) + (H + 1) * V


def nearest_size(wanted: int, count: Callable[[int], int]) -> int:
    """The hidden size whose parameter count, which grows with it, comes closest to `wanted`.

    >>> nearest_size(parameters(Size("lstm", 3, 140)), lambda H: torch_parameters("lstm", 3, H))
    224
    """
    high = 1
    while count(high) < wanted:
        high += 1
    return min((high - 1 or 1, high), key=lambda H: abs(count(H) - wanted))
