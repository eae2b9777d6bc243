"""The names of units (and how many gates they have), wirings and starts, for whoever cannot wait for torch: `--help`,
configurations and recipes.

Those of units and wirings stand in the records of equations.py and nowhere else. Importing that file imports torch,
which takes longer than a help text may, so it is read here, not run.
"""

import ast
from pathlib import Path


def records(kind: str) -> dict[str, list[ast.expr]]:
    """The arguments of every `kind(...)` in equations.py, by the first of them: its name.

    >>> list(records("Unit"))
    ['tanh', 'gru', 'lstm', 'bounded-lstm']
    """
    source = Path(__file__).with_name("equations.py").read_text(encoding="utf-8")
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    made = [call.args for call in calls if isinstance(call.func, ast.Name) and call.func.id == kind]
    first = [(arguments[0], arguments) for arguments in made]
    return {name.value: rest for name, rest in first if isinstance(name, ast.Constant) and isinstance(name.value, str)}


UNITS, WIRINGS = tuple(records("Unit")), tuple(records("Wiring"))
GATES = {name: len(ast.literal_eval(arguments[2])) for name, arguments in records("Unit").items()}
STARTS = ("paper", "scaled", "quiet", "stack")  # of recurrent matrices; parameters.py has what they mean
PRECISIONS = ("float32", "bfloat16", "auto")  # of the factors of matrix products; models/precision.py resolves auto
