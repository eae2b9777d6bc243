"""Models built on the layers."""

from typing import TYPE_CHECKING, Any

__all__ = ["CharLM", "Seq2Seq"]

if TYPE_CHECKING:
    from gfrnn.models.char_lm import CharLM
    from gfrnn.models.seq2seq import Seq2Seq


def __getattr__(name: str) -> Any:
    # A model's options (config.py) are asked for by `gfrnn train --help`, which must not wait for torch.
    if name == "CharLM":
        from gfrnn.models.char_lm import CharLM

        return CharLM
    if name == "Seq2Seq":
        from gfrnn.models.seq2seq import Seq2Seq

        return Seq2Seq
    raise AttributeError(f"module 'gfrnn.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
