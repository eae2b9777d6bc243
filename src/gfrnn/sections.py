"""Groups of options as frozen dataclasses: one source for the command line, YAML and Python. No torch, no argparse."""

import dataclasses
import math
import reprlib
import typing
from typing import Any

from gfrnn.errors import UsageError, nearest

S = typing.TypeVar("S", bound="Section")
LARGEST, LARGEST_WHOLE = 3.4e38, 2**63 - 1  # what a float of 32 bits and an integer of 64 can hold


def option(
    default: Any, help: str, *, least: float | None = None, above: float | None = None, most: float = LARGEST
) -> Any:
    """A field of a `Section`: its default, its help, the smallest value (or the bound it must exceed), the largest.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Sizes(Section):
    ...     hidden_size: int = option(140, "units per layer", least=1)
    >>> Sizes().hidden_size
    140
    >>> Sizes(0)
    Traceback (most recent call last):
    gfrnn.errors.UsageError: hidden_size must be at least 1, got 0
    """
    return dataclasses.field(default=default, metadata={"help": help, "least": least, "above": above, "most": most})


@dataclasses.dataclass(frozen=True)
class Section:
    """A group of options. Values are checked however they arrive: command line, YAML or Python."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not fits(value, hints[field.name]):
                raise UsageError(f"{field.name} must be {wanted(hints[field.name], value)}")
            if isinstance(value, float | int):
                check_number(field.name, value, **{k: field.metadata.get(k) for k in ("least", "above", "most")})

    @classmethod
    def from_mapping(cls: type[S], values: Any, where: str) -> S:
        """From a parsed YAML mapping; `where` names the file and section in messages."""
        known = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(values, dict):
            raise UsageError(f"{where} must be a mapping with the keys {', '.join(known)}")
        for key in values:
            if key not in known:
                raise UsageError(f"{where}: unknown key {reprlib.repr(key)}{nearest(str(key), known)}")
        try:
            return cls(**values)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error


def wanted(hint: Any, value: Any) -> str:
    """What stands after "must be" where `value` does not fit.

    >>> wanted(typing.Literal["linear", "cosine"], "cosin")
    "one of linear, cosine, got 'cosin'; did you mean 'cosine'?"
    """
    got = f"got {reprlib.repr(value)[:80]}"
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        return f"one of {', '.join(choices)}, {got}{nearest(str(value), choices)}"
    return f"of type {getattr(hint, '__name__', hint)}, {got}".replace("typing.", "")


def fits(value: Any, hint: Any) -> bool:
    """Whether `value` is of the type `hint` (int, float, str, bool, None, Literal or a union of those)."""
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if typing.get_args(hint):
        return any(fits(value, part) for part in typing.get_args(hint))
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def check_number(
    name: str, value: float, least: float | None = None, above: float | None = None, most: float | None = None
) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{name} must be finite, got {value}")
    largest = LARGEST if most is None else most
    if abs(value) > min(largest, LARGEST_WHOLE if isinstance(value, int) else LARGEST):
        raise UsageError(f"{name} is too large: {reprlib.repr(value)[:80]}")
    if least is not None and value < least:
        raise UsageError(f"{name} must be at least {least}, got {value}")
    if above is not None and value <= above:
        raise UsageError(f"{name} must be greater than {above}, got {value}")
