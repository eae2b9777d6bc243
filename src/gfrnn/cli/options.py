"""Command-line options: argparse with our sentences, and frozen dataclasses (`Section`) as groups of options.

No torch here: every `--help` must answer at once.
"""

import argparse
import contextlib
import dataclasses
import math
import re
import typing
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from gfrnn.errors import UsageError, nearest

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "null"}
BOOLEANS = {"true": True, "false": False}


class Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)


class Parser(argparse.ArgumentParser):
    """Parses one verb's options; whatever is wrong becomes a `UsageError` of one sentence.

    An option's `type` may be any annotation that a `Section` may have: int, float, str, bool, Literal, `X | None`.

    >>> parser = Parser(prog="gfrnn eval")
    >>> _ = parser.add_argument("--split", type=str, default="test")
    >>> parser.parse_args(["--spilt", "valid"])
    Traceback (most recent call last):
    gfrnn.errors.UsageError: eval: unknown option --spilt; did you mean '--split'?
    """

    taken: ClassVar[list["Parser"] | None] = None  # see parser_of

    def __init__(self, prog: str, description: str | None = None, usage: str | None = None) -> None:
        self.known_options: list[str] = []
        super().__init__(prog, usage, description, formatter_class=Formatter, allow_abbrev=False, exit_on_error=False)

    @property
    def verb(self) -> str:
        """Before what is wrong with its words; that it is gfrnn who speaks is said for all errors alike."""
        return self.prog.removeprefix("gfrnn ")

    def add_argument(self, *names: str, **kwargs: Any) -> argparse.Action:
        self.known_options += [name for name in names if name.startswith("-")]
        return super().add_argument(*names, **with_converter(kwargs))

    def add_section(self, default: Any, title: str) -> None:
        """One option per field of `default`, an instance of a `Section` whose fields were made by `option`."""
        group = self.add_argument_group(title)
        hints = typing.get_type_hints(type(default))
        for field in dataclasses.fields(default):
            value = getattr(default, field.name)
            off = ", null: none" if value is not None and type(None) in typing.get_args(hints[field.name]) else ""
            shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
            name = f"--{field.name.replace('_', '-')}"
            help = f"{field.metadata.get('help', '')} [{shown}{off}]".strip().replace("%", "%%")
            group.add_argument(name, default=value, help=help, **with_converter({"type": hints[field.name]}))
            self.known_options.append(name)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Namespace:  # type: ignore[override]
        """As argparse; options may stand between arguments, and `--some_key` is read as `--some-key`."""
        try:
            found, extra = self.parse_known_intermixed_args([dashed(word) for word in args or []], namespace)
        except argparse.ArgumentError as error:
            option = f"{error.argument_name.split('/')[-1]}: " if error.argument_name else ""
            raise UsageError(f"{self.verb}: {option}{error.message}") from error
        for word in extra:
            if word.startswith("-") and word not in ("-", "--"):
                name = word.split("=")[0]
                raise UsageError(f"{self.verb}: unknown option {name}{nearest(name, self.known_options)}")
        if extra:
            raise UsageError(f"{self.verb}: unexpected argument '{extra[0]}'")
        return found

    def error(self, message: str) -> typing.NoReturn:
        raise UsageError(f"{self.verb}: {message}")

    def print_help(self, file: Any = None) -> None:
        if Parser.taken is None:
            super().print_help(file)
        else:
            Parser.taken.append(self)


def parser_of(verb: Callable[[list[str]], int]) -> Parser:
    """The parser of a verb, which builds it when it is called: it is asked for help, and what would show it is kept."""
    found: list[Parser] = []
    Parser.taken = found
    try:
        with contextlib.suppress(SystemExit):
            verb(["--help"])
    finally:
        Parser.taken = None
    return found[0]


def with_converter(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `add_argument` with an annotation for `type` made into what argparse calls."""
    hint = kwargs.get("type")
    if hint is None or (hint not in WORDS and not typing.get_args(hint)):
        return kwargs
    choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else tuple(BOOLEANS)
    shown = {} if hint is not bool and typing.get_origin(hint) is not typing.Literal else {"metavar": braced(choices)}
    return {**shown, **kwargs, "type": converter(hint)}


def braced(choices: Sequence[str]) -> str:
    return "{" + ",".join(choices) + "}"


def converter(hint: Any) -> Callable[[str], Any]:
    """What turns a typed word into a value of the type `hint`.

    >>> converter(int | None)("null"), converter(bool)("true"), converter(float)("1e-3")
    (None, True, 0.001)
    """
    if typing.get_origin(hint) is typing.Literal:
        return lambda word: choose(word, typing.get_args(hint))
    kinds = typing.get_args(hint) or (hint,)

    def convert(word: str) -> Any:
        for kind in sorted(kinds, key=list(WORDS).index, reverse=True):  # null before any text
            try:
                return value_of(word, kind)
            except ValueError:
                continue
        expected = " or ".join(WORDS[kind] for kind in kinds)
        raise argparse.ArgumentTypeError(f"expected {expected}, got '{word}'")

    return convert


def value_of(word: str, kind: type) -> Any:
    if kind is type(None) and word != "null":
        raise ValueError
    if kind is bool:
        if word.lower() not in BOOLEANS:
            raise ValueError
        return BOOLEANS[word.lower()]
    value: Any = None if kind is type(None) else kind(word)
    if kind is float and not math.isfinite(value):
        raise ValueError
    return value


def choose(word: str, choices: Sequence[str]) -> str:
    if word not in choices:
        raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(choices)}{nearest(word, choices)}")
    return word


def dashed(word: str) -> str:
    """`--hidden_size=3` as `--hidden-size=3`; anything that is no long option stays."""
    if not re.match(r"--[A-Za-z]", word):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value
