"""A campaign on a terminal: the table of its runs before it starts, and a line for each job while it works."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfrnn.campaign.estimate import Estimate, Rates, estimate, in_all, size_of
from gfrnn.campaign.plan import Planned
from gfrnn.campaign.run import Campaign, Job, Watch
from gfrnn.campaign.runs import RunState
from gfrnn.cli.progress import Bar


@dataclass(frozen=True)
class Table:
    """Every planned run, how far it is, and what is left of it."""

    folder: Path
    jobs: int
    threads: int
    rows: Sequence[tuple[Planned, RunState, Estimate | None]]

    def left(self) -> dict[str, float]:
        """Seconds that each run still needs from this campaign."""
        return {run.name: e.seconds for run, state, e in self.rows if e is not None and state.state != "running"}

    def lines(self) -> list[str]:
        wide = max(len(run.name) for run, _, _ in self.rows)
        lines = [f"{'run':<{wide}}  {'state':<9}{'characters':>22}{'time left':>12}  rate"]
        for run, state, left in self.rows:
            read, all_of_it = amount(state.characters), amount(size_of(run).characters)
            so_far = f"{read} of {all_of_it}" if state.state != "foreign" else ""
            time_left = f"{duration(left.seconds):>12}  {left.rate:,.0f}/s, {left.source}" if left else ""
            lines.append(f"{run.name:<{wide}}  {state.state:<9}{so_far:>22}{time_left}".rstrip())
        lines += [f"left out: {state.why}" for _, state, _ in self.rows if state.state == "foreign"]
        return [*lines, self.summary()]

    def summary(self) -> str:
        counts = Counter(state.state for _, state, _ in self.rows)
        states = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        left = list(self.left().values())
        each = f"{self.jobs} at a time, {self.threads} thread{'s' * (self.threads > 1)} each"
        time_left = f"; about {duration(in_all(left, self.jobs))} in all, {each}" if left else ""
        return f"{len(self.rows)} runs in {self.folder}: {states}{time_left}"

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "jobs": self.jobs,
            "threads": self.threads,
            "seconds_left": in_all(list(self.left().values()), self.jobs),
            "runs": [
                {
                    "run": run.name,
                    "recipe": run.recipe,
                    "seed": run.seed,
                    "budget": str(run.budget),
                    "state": state.state,
                    "why": state.why,
                    "characters": state.characters,
                    "characters_planned": size_of(run).characters,
                    "seconds": state.seconds,
                    "seconds_left": left.seconds if left else None,
                    "rate": left.rate if left else None,
                    "rate_source": left.source if left else None,
                }
                for run, state, left in self.rows
            ],
        }


def make(folder: Path, plans: Sequence[Planned], states: Sequence[RunState], jobs: int, threads: int) -> Table:
    rates = Rates(folder, threads)
    estimates = [estimate(run, state, rates) for run, state in zip(plans, states, strict=True)]
    return Table(folder, jobs, threads, list(zip(plans, states, estimates, strict=True)))


def amount(characters: int) -> str:
    """
    >>> amount(950), amount(18_000), amount(90_000_000), amount(9_000_000_000)
    ('950', '18.0 k', '90.0 M', '9,000.0 M')
    """
    scale, unit = (1e6, " M") if characters >= 1e6 else (1e3, " k") if characters >= 1e3 else (1, "")
    return f"{characters / scale:,.1f}{unit}" if unit else str(characters)


def duration(seconds: float) -> str:
    """
    >>> duration(7.2), duration(600), duration(7900), duration(400_000)
    ('8 s', '10 min', '2 h 12 min', '4 d 15 h')
    """
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


class Display(Watch):
    """One line for each job and one for the campaign, on what `bar` is: a terminal, plain lines, or nothing."""

    def __init__(self, bar: Bar, left: Mapping[str, float]) -> None:
        self.bar, self.seconds_left = bar, left
        self.lines: dict[str, Any] = {}

    def show(self, campaign: Campaign) -> None:
        if not self.bar.due():
            return
        parts = {job.planned.name: self.show_job(job) for job in campaign.active}
        if self.bar.bar is not None:
            for name in set(self.lines) - set(parts):
                self.bar.bar.remove_task(self.lines.pop(name))
        waiting = {run.name for run in campaign.pending}
        to_do = sum(s * (1 - parts.get(n, 0.0)) for n, s in self.seconds_left.items() if n in waiting or n in parts)
        failed = f", {len(campaign.failed)} failed" if campaign.failed else ""
        words = f"{len(campaign.finished)} of {len(campaign.plans)} finished{failed}"
        self.bar.show(1 - to_do / max(sum(self.seconds_left.values()), 1e-9), words)

    def show_job(self, job: Job) -> float:
        """Show how far a job is; the part of it that is done."""
        name = job.planned.name
        part, record = job.progress()
        words = describe(record, job.planned.is_text) if job.phase == "train" else "evaluating"
        if self.bar.bar is None:
            self.bar.say(f"{name}  {100 * part:5.1f} %  {words}".rstrip())
        else:
            if name not in self.lines:
                self.lines[name] = self.bar.bar.add_task(name, total=1.0, words="")
            self.bar.bar.update(self.lines[name], completed=part, words=words)
        return part

    def tell(self, sentence: str) -> None:
        self.bar.say(sentence)

    def warn(self, sentence: str) -> None:
        self.bar.warn(sentence)


def describe(record: Mapping[str, Any], is_text: bool) -> str:
    """A record of the log in a few words."""
    words = []
    if "bpc" in record:
        words.append(f"validation {record['bpc']:.3f} BPC")
    elif "symbol_accuracy" in record:
        words.append(f"validation {100 * record['symbol_accuracy']:.1f} % of symbols")
    elif "nats" in record:
        words.append(f"{record['nats'] / math.log(2):.3f} BPC" if is_text else f"{record['nats']:.3f} nats/symbol")
    if record.get("seconds"):
        words.append(f"{record.get('characters', 0) / record['seconds']:,.0f} chars/s")
    return "  ".join(words) or "starting"
