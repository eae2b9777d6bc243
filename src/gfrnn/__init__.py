"""Gated Feedback Recurrent Neural Networks (Chung, Gulcehre, Cho, Bengio, 2015) for PyTorch."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["GFGRU", "GFLSTM", "GFRNN", "__version__"]

if TYPE_CHECKING:
    from gfrnn.layers import GFGRU, GFLSTM, GFRNN


def __getattr__(name: str) -> Any:
    # torch takes a second to import; `gfrnn --help` must not wait for it.
    if name in ("GFGRU", "GFLSTM", "GFRNN"):
        from gfrnn import layers

        return getattr(layers, name)
    raise AttributeError(f"module 'gfrnn' has no attribute {name!r}")
