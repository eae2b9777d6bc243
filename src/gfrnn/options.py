"""Command-line options: jsonargparse with our error sentences, and frozen dataclasses as groups of options.

No torch here: every `--help` must answer at once.
"""

import argparse
import dataclasses
import math
import re
import reprlib
import typing
from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from gfrnn.errors import UsageError, nearest

S = typing.TypeVar("S", bound="Section")
LARGEST, LARGEST_WHOLE = 3.4e38, 2**63 - 1  # what a float of 32 bits and an integer of 64 can hold


class Parser(ArgumentParser):
    """Parses one verb's options; whatever is wrong becomes a `UsageError` of one sentence.

    >>> parser = Parser(prog="gfrnn eval")
    >>> _ = parser.add_argument("--split", type=str, default="test")
    >>> parser.parse_args(["--spilt", "valid"])
    Traceback (most recent call last):
    gfrnn.errors.UsageError: gfrnn eval: unknown option --spilt; did you mean '--split'?
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", Formatter)
        super().__init__(*args, allow_abbrev=False, exit_on_error=False, **kwargs)

    def parse_args(self, args: Sequence[str] | None = None, **kwargs: Any) -> Namespace:  # type: ignore[override]
        """As argparse; `--some_key` is read as `--some-key`."""
        try:
            return super().parse_args(self.options_first([dashed(word) for word in args or []]), **kwargs)
        except argparse.ArgumentError as error:
            raise UsageError(f"{self.prog}: {self.sentence(str(error))}") from error

    def options_first(self, words: list[str]) -> list[str]:
        """The same words with the arguments last: argparse takes no more of them after `RUN --json`."""
        if all(action.option_strings for action in self._actions):
            return words
        options: list[str] = []
        arguments: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                return [*options, word, *arguments, *rest]
            if word == "-" or not word.startswith("-"):
                arguments.append(word)
                continue
            options.append(word)
            action = self._option_string_actions.get(word)
            if action is not None and action.nargs is None:
                options += [value for value in (next(rest, None),) if value is not None]
        return [*options, *arguments]

    def error(self, message: str, ex: Exception | None = None) -> typing.NoReturn:
        raise argparse.ArgumentError(None, message) from ex

    def sentence(self, message: str) -> str:
        """jsonargparse's (sometimes several) lines as one sentence in terms of what was typed."""
        unknown = re.search(r"[Uu]nrecognized arguments: (\S+)", message)
        if unknown:
            word = unknown[1].split("=")[0]
            if word.startswith("-"):
                return f"unknown option {word}{nearest(word, self._option_string_actions)}"
            return f"unexpected argument '{word}'"
        key = re.search(r'[Kk]ey "([\w.]+)":?', message)
        option = f"--{key[1].replace('_', '-')}: " if key else ""
        text = " ".join((message[key.end() :] if key else message).split())
        choices = re.search(r"Expected a typing\.Literal\[(.*?)\]\. Got value: (.*)", text)
        if choices:
            words = re.findall(r"'([^']*)'", choices[1])
            return f"{option}'{choices[2]}' is none of {', '.join(words)}{nearest(choices[2], words)}"
        wrong = re.search(r"Expected a (.*?)\. Got value: (\S+)", text)
        if wrong:
            return f"{option}expected {TYPE_WORDS.get(wrong[1], wrong[1])}, got '{wrong[2]}'"
        union = re.search(r"Subtypes: \[(.*?)\].*Given value: (.*)", text)
        if union:
            words = [TYPE_WORDS.get(kind, kind) for kind in union[1].split(", ")]
            return f"{option}expected {' or '.join(words)}, got '{union[2]}'"
        return option + text


TYPE_WORDS = {
    "<class 'int'>": "a whole number",
    "<class 'float'>": "a number",
    "<class 'bool'>": "true or false",
    "<class 'str'>": "a text",
    "<class 'NoneType'>": "null",
}


class Formatter(argparse.HelpFormatter):
    """argparse's own help: shorter than jsonargparse's, and it needs no more imports."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)


def dashed(word: str) -> str:
    """`--hidden_size=3` as `--hidden-size=3`; anything that is no long option stays."""
    if not re.match(r"--[A-Za-z]", word):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def add_dataclass(parser: Parser, default: Any, title: str) -> None:
    """One option per field of `default`, an instance of a `Section` whose fields were made by `option`."""
    group = parser.add_argument_group(title)
    hints = typing.get_type_hints(type(default))
    for field in dataclasses.fields(default):
        value = getattr(default, field.name)
        off = ", null: none" if value is not None and type(None) in typing.get_args(hints[field.name]) else ""
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
        group.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=hints[field.name],
            default=value,
            help=f"{field.metadata.get('help', '')} [{shown}{off}]".strip().replace("%", "%%"),
        )


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
                expected = str(getattr(hints[field.name], "__name__", hints[field.name])).replace("typing.", "")
                raise UsageError(f"{field.name} must be of type {expected}, got {reprlib.repr(value)[:80]}")
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
