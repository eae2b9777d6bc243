"""The reader of the programs' language, and its symbols."""

import pytest

from gfrnn.errors import DataError
from gfrnn.models.program_symbols import decode_target, encode_source, encode_target
from gfrnn.tasks.programs import Settings, stream
from gfrnn.tasks.programs.language import evaluate


def test_the_reader_agrees_with_the_generator_everywhere() -> None:
    for program in stream(8, 500, Settings(max_length=12, max_nesting=10)):
        assert str(evaluate(program.source)) == program.target


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", "the program is empty"),
        ("while 1:a=1", "line 1, column 1: 'w' is not one of the language's 40 symbols"),
        ("a=3\nprint((a/2))", "line 2, column 9: '/' is not"),
        ("a=3\ndel a\nprint(a)", "line 2, column 1: `del a` is not something the language has"),
        ("def f():\n  pass\nprint(1)", "line 1, column 1: `def f():` is not"),
        ("print(-3)", "line 1, column 7: `-3` is not something"),
        ("print((2**3))", "`2**3` is not something"),
        ("print((2<3))", "`2<3` is not something"),
        ("a=2;\nprint((a*a))", "`a*a` is not something"),
        ("l=2;\nprint(l)", "line 1, column 1: `l` is not a variable of the language"),
        ("print(x)", "`x` is not a variable"),
        ("print((b+1))", "`b` has no value yet"),
        ("print(1+2+3)", "needs parentheses"),
        ("a=1\nfor x in range(3):a+=a\nprint(a)", "uses the variable it changes"),
        ("a=1\nfor x in range(3):a=2\nprint(a)", "`for x in range(3):a=2` is not"),
        ("print(1)\nprint(2)", "line 1, column 1: `print(1)` is not the program's last line"),
        ("a=1", "does not end with print(...)"),
        (" print(1)", "Python cannot read it: unexpected indent"),
        ("print((1)", "'(' was never closed"),
        ("print(" + "(" * 500 + "1" + ")" * 501, "too many nested parentheses"),
        ("print(" + "1+" * 200 + "1)", "needs parentheses"),
        ("print(" + "1" * 5000 + ")", "Python cannot read it"),
        ("print()", "line 1, column 1: `print()` is not understood: print takes one value"),
        ("print(" + "-" * 9000 + "1)", "nested too deeply"),
        ("print(0x1f)", "`0x1f` is not something the language has"),
        ("print((0b11+1))", "`0b11` is not something"),
        ("a=1\nfor x in range(0o17):a+=1\nprint(a)", "`for x in range(0o17):a+=1` is not something"),
        ("print(4or 5)", "`4or 5` is not something"),
        (f"print(({'9' * 4000}*{'9' * 4000}))", "comes to more than 62 digits, which no model can say"),
        (f"print({10**62})", "comes to more than 62 digits"),
        (f"a=1\nfor x in range({10**30}):a+={10**32}\nprint(a)", "line 2, column 1: `for x in range(1000"),
        ("1" * 20_000, "20,000 characters; at most 10,000"),
        ("print(é)", "'é' is not one of"),
    ],
)
def test_outside_the_language_is_named(source: str, sentence: str) -> None:
    with pytest.raises(DataError) as raised:
        evaluate(source)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("print(1+2)", 3),
        ("print((1if 2<3 else 4))", 1),
        (f"print({10**62 - 1})", 10**62 - 1),
        (f"print((1-{10**62 - 1}))", 2 - 10**62),
        ("print(" + "(1+" * 150 + "1" + ")" * 151, 151),
    ],
)
def test_what_is_read_beyond_what_is_generated(source: str, value: int) -> None:
    """Warnings are errors here: `1if` must not raise one."""
    assert evaluate(source) == value


def test_symbols_round_trip() -> None:
    assert len(encode_source("print(1)\n")) == 9
    assert decode_target(encode_target("-1024")) == "-1024"
