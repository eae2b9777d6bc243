"""Models built on the layers."""

from gfrnn.models.char_lm import CharLM
from gfrnn.models.seq2seq import Seq2Seq

__all__ = ["CharLM", "Seq2Seq"]
