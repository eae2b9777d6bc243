"""The paper's claims and what the runs say of each: claims.yaml has the rules in words, rules.py carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from gfrnn.report.evidence import Evidence
from gfrnn.report.rules import RULES, Verdict, nothing_yet
from gfrnn.report.texts import Texts


@dataclass(frozen=True)
class Claim:
    """One of the paper's claims, with the test that decides it."""

    id: int
    claim: str
    paper: str
    test: str
    options: Mapping[str, Any]
    ours: bool = False  # a comparison that the paper does not print

    def verdicts(self, evidence: Evidence, texts: Texts | None = None) -> list[Verdict]:
        """One for every group of runs that says anything of it, the longest training first; or why there is none."""
        options = {**self.options, "texts": texts}
        found = [RULES[self.test](options, evidence, group) for group in evidence.groups_of(self.rows)]
        return [verdict for verdict in found if verdict is not None] or [nothing_yet(self.test, options, evidence)]

    @property
    def rows(self) -> tuple[str, ...]:
        """The models it speaks of."""
        return tuple(self.options.get("chain") or (self.options[k] for k in ("better", "worse") if k in self.options))


def summary(verdicts: list[Verdict]) -> Verdict:
    """Of those that decide, if they agree, that of the longest training; without any, of the longest. Those that
    contradict one another decide nothing."""
    deciding = [one for one in verdicts if one.word in ("reproduced", "contradicted")]
    if len({one.word for one in deciding}) < 2:
        return deciding[0] if deciding else verdicts[0]
    return Verdict("undecided", "it depends on settings and budget, see each")


def document() -> dict[str, Any]:
    """results/claims.yaml, which the package carries along."""
    content: dict[str, Any] = yaml.safe_load(resources.files("gfrnn").joinpath("report/claims.yaml").read_text())
    return content


def load_claims() -> list[Claim]:
    """All claims, by number."""
    given = document()
    known = {"id", "claim", "paper", "test", "ours"}
    margin = {"margin_of_interest": given["margin_of_interest"]}
    return [
        Claim(
            c["id"],
            c["claim"],
            c["paper"],
            c["test"],
            options={**margin, **{k: v for k, v in c.items() if k not in known}},
            ours=c.get("ours", False),
        )
        for c in given["claims"]
    ]
