"""The names of the units, wirings and starts, for whoever cannot wait for torch: `--help` and configurations.

Those of units and wirings stand in the records of equations.py and nowhere else. Importing that file imports torch,
which takes longer than a help text may, so it is read here, not run.
"""

import ast
from pathlib import Path


def names(record: str) -> tuple[str, ...]:
    """The first argument of every `record(...)` in equations.py.

    >>> names("Unit")
    ('tanh', 'gru', 'lstm', 'bounded-lstm')
    """
    source = Path(__file__).with_name("equations.py").read_text(encoding="utf-8")
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    made = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == record]
    return tuple(first.value for first in made if isinstance(first, ast.Constant) and isinstance(first.value, str))


UNITS, WIRINGS = names("Unit"), names("Wiring")
STARTS = ("paper", "scaled", "quiet", "stack")  # of recurrent matrices; parameters.py has what they mean
PRECISIONS = ("float32", "bfloat16", "auto")  # of the factors of matrix products; models/precision.py resolves auto
