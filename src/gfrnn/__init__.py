"""Gated Feedback Recurrent Neural Networks (Chung, Gulcehre, Cho, Bengio, 2015) for PyTorch.

GFLSTM, GFGRU and GFRNN are called like torch.nn.LSTM, GRU and RNN, and feed every layer's last state to every layer,
each through a gate that learns when to listen:

    import torch
    from gfrnn import GFLSTM

    layer = GFLSTM(10, 20, num_layers=3)                 # wiring="gated"; "feedback" and "stacked" are there to compare
    output, (h_n, c_n) = layer(torch.randn(7, 4, 10))    # (T, B, I), state in and out as in torch

    from gfrnn.models import CharLM                      # a model of text, byte by byte

    model = CharLM.from_pretrained("gf-lstm-enwik8")     # in the package
    print(model.generate("The ", 100, seed=1))

    from gfrnn import convert                            # to and from torch.nn's layers
    stack = convert.from_torch(torch.nn.LSTM(10, 20))

`help(gfrnn.GFLSTM)` has the equations, `gfrnn --help` the commands (training, evaluation, text), gfrnn/equations.py the
paper.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["GFGRU", "GFLSTM", "GFRNN", "GFBoundedLSTM", "__version__"]

if TYPE_CHECKING:
    from gfrnn.layers import GFGRU, GFLSTM, GFRNN, GFBoundedLSTM


def __getattr__(name: str) -> Any:
    # torch takes a second to import; `gfrnn --help` must not wait for it.
    if name in __all__:
        from gfrnn import layers

        return getattr(layers, name)
    raise AttributeError(f"module 'gfrnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
