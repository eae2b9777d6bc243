"""Names of things as a report says them: settings and budgets, rows, and the commands behind them."""

from __future__ import annotations

import shlex

from gfrnn.campaign.plan import plain, recipe_of, typed
from gfrnn.equations import PAPER
from gfrnn.report.finished import RATE, Group, Run

UNITS = {unit.name: unit.title for unit in PAPER}
KINDS = {
    "single": "single layer",
    "stacked": "stacked",
    "gated": "gated feedback",
    "gated-own": "gated feedback, as printed",
    "gated-L": "gated feedback L",
    "feedback": "feedback, gates fixed to 1",
    "programs-stacked": "stacked",
    "programs-gated": "gated feedback",
}
AMOUNTS = {"k": "thousand characters", "M": "M characters", "G": "G characters"}


def settings_words(settings: str) -> str:
    """
    >>> settings_words("modern, learning rate 0.008")
    'modern settings, learning rate 0.008'
    """
    own, *more = settings.split(", ")
    return ", ".join([{"modern": "modern settings", "paper": "the paper's settings"}[own], *more])


def budget_words(budget: str) -> str:
    """
    >>> [budget_words(budget) for budget in ("1epoch", "0.5epochs", "10M", "1500chars", "5000 updates")]
    ['1 epoch', '0.5 epochs', '10 M characters', '1500 characters', '5000 updates']
    """
    if budget[-1] in AMOUNTS:
        return f"{budget[:-1]} {AMOUNTS[budget[-1]]}"
    number = budget.rstrip("abcdefghijklmnopqrstuvwxyz, ")
    rest = budget[len(number) :].strip().replace("chars", "characters")
    return f"{number} {rest}"


def group_words(group: Group) -> str:
    return f"{settings_words(group[0])}, {budget_words(group[1])}"


def unit_of(row: str) -> str:
    """
    >>> unit_of("gated-L-gru"), unit_of("large")
    ('gru', 'lstm')
    """
    last = row.rpartition("-")[2]
    return last if last in UNITS else "lstm"


def row_words(row: str) -> str:
    """
    >>> row_words("gated-L-lstm"), row_words("programs-stacked-gru")
    ('LSTM, gated feedback L', 'GRU, stacked')
    """
    kind, _, unit = row.rpartition("-")
    return f"{UNITS[unit]}, {KINDS[kind]}" if kind else "the large gated-feedback LSTM"


def size_words(row: str) -> str:
    options = recipe_of(row, "paper").config.options
    return f"{options['num_layers']} x {options['hidden_size']}"


def train_command(row: str, like: Run, seed: int) -> str:
    """What trains a row as the runs of a group were trained, of which `like` is one."""
    recipe = recipe_of(row, like.settings.split(", ")[0])
    words = ["gfrnn", "train", recipe.name]
    if like.config.run.budget != recipe.config.run.budget:
        words += [word for unit, limit in like.config.run.budget.items() for word in (f"--{unit}", number(limit))]
    unknown = {RATE} if like.rate_of_its_row and like.row != row else set()  # it is for another row
    for key, value in like.departures.items():
        if key in unknown:
            continue
        words += [f"--{key.replace('_', '-')}", typed(value)]
    words += ["--seed", str(seed)] if seed != recipe.config.run.seed else []
    return shlex.join(words)


def number(value: float) -> str:
    """
    >>> number(10_000_000), number(0.5)
    ('10000000', '0.5')
    """
    return str(int(value)) if value == int(value) else plain(value)
