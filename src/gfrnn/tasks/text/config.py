"""The text task's own group of options; its model's are models/config.py's."""

import dataclasses
from typing import Literal

from gfrnn.errors import UsageError
from gfrnn.sections import Section, option


@dataclasses.dataclass(frozen=True)
class TextConfig(Section):
    """Language modelling: which text is read, and in what portions."""

    data: str | None = option(
        None, "the text: a file, raw, .gz or .zip, or the word excerpt (default: enwik8 if found, else the excerpt)"
    )
    rows: int = option(100, "texts read in parallel: the minibatch", least=1)
    length: int = option(100, "characters per row and update: truncated back-propagation", least=1)
    grow_after: int = option(0, "the update from which on rows are grow_length times as long; 0: never", least=0)
    grow_length: int = option(2, "times the length, from update grow_after on", least=1, most=1000)
    reset_every: int = option(100, "zero the hidden state before every n-th update; 0: never", least=0)
    reset_probability: float = option(
        0.0, "zero a row's hidden state before an update with this probability, each row by itself", least=0, most=1
    )
    unknown: Literal["learn", "refuse", "replace"] = option(
        "learn",
        "bytes that enwik8 (or the model of --init) does not have: learnt (the model knows all 256 then), refused, "
        "or read as '?'",
    )
    validate_chars: int = option(0, "validate on the first n characters of the split; 0: on all", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.validate_chars == 1:
            raise UsageError("validate_chars must be 0 or at least 2: one character alone cannot be scored")
