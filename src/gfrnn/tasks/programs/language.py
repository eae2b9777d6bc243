"""Reads a program of the task's language and works out its answer, without running anything.

>>> evaluate("a=7\\nfor x in range(3):a-=2\\nprint((a*4))")
4
>>> evaluate("del a")
Traceback (most recent call last):
gfrnn.errors.DataError: line 1, column 1: `del a` is not something the language has
"""

from __future__ import annotations

import ast
import warnings

from gfrnn.errors import DataError
from gfrnn.models.program_symbols import MOST_SYMBOLS, encode_source
from gfrnn.tasks.programs.settings import VARIABLES

MOST_CHARACTERS = 10_000
MOST_DIGITS = MOST_SYMBOLS - 2  # a sign and the end mark are to be said too
TOO_LARGE = 10**MOST_DIGITS


def evaluate(source: str) -> int:
    """What `source` prints; a DataError names the first symbol or construct that the language does not have."""
    if len(source) > MOST_CHARACTERS:
        raise DataError(f"the program has {len(source):,} characters; at most {MOST_CHARACTERS:,} are read")
    encode_source(source)
    try:
        return _Reader(source).run()
    except (RecursionError, MemoryError):
        raise DataError("the program is nested too deeply") from None


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.split("\n")
        self.values: dict[str, int] = {}

    def run(self) -> int:
        statements = self.parse()
        for statement in statements[:-1]:
            self.statement(statement)
        match statements:
            case [*_, ast.Expr(ast.Call(ast.Name("print"), [argument], []))]:
                return self.expression(argument)
            case [*_, ast.Expr(ast.Call(ast.Name("print"))) as last]:
                raise self.unknown(last, "is not understood: print takes one value")
            case [*_, last]:
                # A construct that is unknown anywhere is a better answer than one that is only in the wrong place.
                self.statement(last)
        raise DataError("the program does not end with print(...)")

    def parse(self) -> list[ast.stmt]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # `1if` is bad style, which is nobody's business here
                return ast.parse(self.source).body
        except SyntaxError as error:
            raise DataError(f"line {error.lineno}: Python cannot read it: {error.msg}") from None
        except ValueError as error:
            raise DataError(f"Python cannot read it: {error}") from None

    def unknown(self, node: ast.stmt | ast.expr, reason: str = "is not something the language has") -> DataError:
        text = (ast.get_source_segment(self.source, node) or "").split("\n")[0]
        text = text if len(text) <= 60 else text[:57] + "..."
        return DataError(f"line {node.lineno}, column {node.col_offset + 1}: `{text}` {reason}")

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign([ast.Name() as name], value):
                new = self.expression(value)
                self.values[self.variable(name)] = new
            case ast.For(
                ast.Name("x"),
                ast.Call(ast.Name("range"), [ast.Constant(int(rounds)) as written], []),
                [ast.AugAssign(ast.Name() as name, ast.Add() | ast.Sub() as sign, value)],
                [],
            ) if self.is_decimal(written):
                changed = self.variable(name)
                if any(isinstance(part, ast.Name) and part.id == changed for part in ast.walk(value)):
                    raise self.unknown(node, "uses the variable it changes")
                start, step = self.expression(self.as_read(name)), self.expression(value)
                end = start + rounds * (step if isinstance(sign, ast.Add) else -step)
                self.values[changed] = self.bounded(node, end)
            case ast.Expr(ast.Call(ast.Name("print"))):
                raise self.unknown(node, "is not the program's last line")
            case _:
                raise self.unknown(node)

    def variable(self, name: ast.Name) -> str:
        if name.id not in VARIABLES or len(name.id) != 1:
            raise self.unknown(name, "is not a variable of the language: they are a to j")
        return name.id

    @staticmethod
    def as_read(name: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(name.id, ast.Load()), name)

    def bounded(self, node: ast.stmt | ast.expr, value: int) -> int:
        if abs(value) >= TOO_LARGE:
            raise self.unknown(node, f"comes to more than {MOST_DIGITS} digits, which no model can say")
        return value

    def expression(self, node: ast.expr) -> int:
        return self.bounded(node, self.value(node))

    def value(self, node: ast.expr) -> int:
        if isinstance(node, ast.BinOp | ast.IfExp) and not self.in_parentheses(node):
            raise self.unknown(node, "needs parentheses around it in the language")
        match node:
            case ast.Constant(int(value)) if self.is_decimal(node):
                return value
            case ast.Name(name):
                if self.variable(node) not in self.values:
                    raise self.unknown(node, "has no value yet")
                return self.values[name]
            case ast.BinOp(a, ast.Add(), b):
                return self.expression(a) + self.expression(b)
            case ast.BinOp(a, ast.Sub(), b):
                return self.expression(a) - self.expression(b)
            case ast.BinOp(a, ast.Mult(), b) if isinstance(a, ast.Constant) or isinstance(b, ast.Constant):
                return self.expression(a) * self.expression(b)
            case ast.IfExp(ast.Compare(a, [ast.Lt() | ast.Gt() as order], [b]), c, d):
                left, right = self.expression(a), self.expression(b)
                yes, no = self.expression(c), self.expression(d)
                return yes if (left < right if isinstance(order, ast.Lt) else left > right) else no
        raise self.unknown(node)

    def is_decimal(self, node: ast.expr) -> bool:
        return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset].isdigit()

    def in_parentheses(self, node: ast.expr) -> bool:
        """The text just before and after the node is a pair: the tree itself does not keep parentheses."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        before = self.lines[node.lineno - 1][: node.col_offset]
        after = self.lines[node.end_lineno - 1][node.end_col_offset :]
        return before.endswith("(") and after.startswith(")")
