"""Programs to execute (Zaremba and Sutskever, 2014), each a pure function of (seed, index, settings).

All the randomness of a program is one large number, a hash of (settings, seed, index, attempt); every choice among
n takes the remainder by n and keeps the quotient. So program 1,000,000 costs no more than program 0, any process can
make any program, and no library's random generator decides what is in the data.

>>> make(seed=1, index=1)
Program(source='print((738 if 6<52 else 841))', target='738', length=3, nesting=1)
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from gfrnn.tasks.programs.settings import LONGEST, ORDERED, VARIABLES, WORD, Ranges, Settings

SPLITS = ("train", "validation", "test")
_POWERS_OF_TEN = tuple(10**n for n in range(LONGEST + 1))


class Program(NamedTuple):
    """`length` is the largest length any part of the program drew: no literal operand exceeds 10 ** length."""

    source: str
    target: str
    length: int
    nesting: int


class _Writer:
    """Writes one program.

    `pending` is the stack of the rules: every operation takes an operand and leaves one, so it never holds two.
    """

    __slots__ = ("_names", "_ranges", "_rest", "_sometimes", "_words", "length", "pending", "statements")

    def __init__(self, randomness: int, ranges: Ranges, sometimes: Ranges | None, words: bool) -> None:
        self._rest = randomness
        self._words = words
        self._ranges = ranges
        self._sometimes = sometimes
        self._names = list(VARIABLES)
        self.length = 0
        self.statements: list[str] = []
        self.pending: tuple[str, int] | None = None

    def below(self, n: int) -> int:
        """Uniform in 0 .. n-1."""
        self._rest, chosen = divmod(self._rest, n)
        return chosen

    def coin(self) -> int:
        """`below(2)` by a shift, which is cheaper: a division of so large a number is what a choice costs."""
        chosen = self._rest & 1
        self._rest >>= 1
        return chosen

    def hardness(self, which: int) -> int:
        """Length (0) or nesting (1), drawn anew at every call; the one not asked for is not drawn."""
        ranges = self._ranges
        if self._sometimes is not None and self.below(5) == 0:
            ranges = self._sometimes
        smallest, how_many = ranges[which]
        if how_many == 1:
            return smallest
        self._rest, chosen = divmod(self._rest, how_many)
        return smallest + chosen

    def literals(self, n: int) -> list[tuple[str, int]]:
        """n of them. Written out for speed: nine of ten choices are made here."""
        (smallest, how_many), sometimes, words = self._ranges[0], self._sometimes, self._words
        rest, longest, drawn = self._rest, self.length, []
        for _ in range(n):
            length = smallest
            if sometimes is not None:
                self._rest = rest
                length, rest = self.hardness(0), self._rest
            elif how_many > 1:
                rest, chosen = divmod(rest, how_many)
                length += chosen
            if length > longest:
                longest = length
            if words:
                rest, word = divmod(rest, WORD)
                chosen = 1 + word % _POWERS_OF_TEN[length]
            else:
                rest, chosen = divmod(rest, _POWERS_OF_TEN[length])
                chosen += 1
            drawn.append((str(chosen), chosen))
        self._rest, self.length = rest, longest
        return drawn

    def small(self) -> int:
        """A factor or a number of rounds."""
        length = self.hardness(0)
        if length > self.length:
            self.length = length
        return 1 + self.below(4 * length)

    def operand(self) -> tuple[str, int]:
        """What the last operation left, or a literal."""
        taken = self.pending
        if taken is None:
            return self.literals(1)[0]
        self.pending = None
        return taken

    def operands(self, n: int) -> list[tuple[str, int]]:
        """n operands, drawn in a random order of positions: only the first drawn can be what was left."""
        if self.pending is None:
            return self.literals(n)
        taken, self.pending = self.pending, None
        drawn = self.literals(n - 1)
        self._rest, place = divmod(self._rest, n)
        drawn.insert(place, taken)
        return drawn

    def variable(self) -> str:
        names = self._names
        self._rest, chosen = divmod(self._rest, len(names))
        return names.pop(chosen)


def _pair(writer: _Writer) -> tuple[str, int]:
    (a, a_value), (b, b_value) = writer.operands(2)
    if writer.coin():
        return f"({a}+{b})", a_value + b_value
    return f"({a}-{b})", a_value - b_value


def _small_product(writer: _Writer) -> tuple[str, int]:
    a, value = writer.operand()
    factor = writer.small()
    return (f"({a}*{factor})" if writer.coin() else f"({factor}*{a})"), value * factor


def _equality(writer: _Writer) -> tuple[str, int]:
    return writer.operand()


def _variable(writer: _Writer) -> tuple[str, int]:
    name = writer.variable()
    (a, a_value), (b, b_value) = writer.operands(2)
    writer.statements.append(f"{name}={a};")
    if writer.coin():
        return f"({name}+{b})", a_value + b_value
    return f"({name}-{b})", a_value - b_value


def _small_loop(writer: _Writer) -> tuple[str, int]:
    name = writer.variable()
    (a, a_value), (b, b_value) = writer.operands(2)
    rounds = writer.small()
    sign, step = ("+", b_value) if writer.coin() else ("-", -b_value)
    writer.statements += (f"{name}={a}", f"for x in range({rounds}):{name}{sign}={b}")
    return name, a_value + rounds * step


def _if_else(writer: _Writer) -> tuple[str, int]:
    (a, a_value), (b, b_value), (c, c_value), (d, d_value) = writer.operands(4)
    if writer.coin():
        return f"({c} if {a}>{b} else {d})", c_value if a_value > b_value else d_value
    return f"({c} if {a}<{b} else {d})", c_value if a_value < b_value else d_value


OPERATIONS: tuple[Callable[[_Writer], tuple[str, int]], ...] = (
    _pair,
    _small_product,
    _equality,
    _variable,
    _small_loop,
    _if_else,
)


def split_of(source: str) -> str:
    """The split a program belongs to, whoever makes it: a hash of its text, modulo 3."""
    return SPLITS[_place_of_split(source)]


def _place_of_split(source: str) -> int:
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest(), "little") % 3


@lru_cache(maxsize=256)
def _prepare(settings: Settings, seed: int) -> tuple[bytes, int, Ranges]:
    return f"{settings.key()}/{seed}/".encode(), settings.random_bytes(), settings.ranges(0, settings.curriculum)


def make(seed: int, index: int, settings: Settings = Settings(), split: str | None = None) -> Program:  # noqa: B008
    """Program number `index` of the stream `seed`.

    With a split it is the first of the attempts 0, 1, 2, ... at this index whose text belongs to the split, so that it
    still depends on nothing but (seed, index, settings, split).
    """
    prefix, size, ranges = _prepare(settings, seed)
    sometimes = None
    if settings.curriculum in ORDERED:
        ranges = settings.ranges(index, "naive")
        sometimes = settings.ranges(index, "mix") if settings.curriculum == "combined" else None
    wanted, words = None if split is None else SPLITS.index(split), settings.literals == "original"
    for attempt in itertools.count():
        randomness = hashlib.shake_128(b"%s%d/%d" % (prefix, index, attempt)).digest(size)
        writer = _Writer(int.from_bytes(randomness, "little"), ranges, sometimes, words)
        nesting = writer.hardness(1)
        for _ in range(nesting):
            writer.pending = OPERATIONS[writer.below(6)](writer)
        assert writer.pending is not None
        expression, value = writer.pending
        source = "\n".join([*writer.statements, f"print({expression})"])
        if wanted is None or _place_of_split(source) == wanted:
            return Program(source, str(value), writer.length, nesting)
    raise AssertionError("unreachable")


def stream(
    seed: int,
    count: int,
    settings: Settings = Settings(),  # noqa: B008
    split: str | None = None,
    first: int = 0,
) -> Iterator[Program]:
    """`count` programs of one stream, in order."""
    return (make(seed, index, settings, split) for index in range(first, first + count))
