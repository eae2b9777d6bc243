"""Models built on the layers."""

from gfrnn.models.char_lm import CharLM

__all__ = ["CharLM"]
