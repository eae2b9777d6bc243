"""How long what is missing will take: from rates measured in runs that are there, or from a short probe.

A rate is characters per second of training. Between models of one task, minibatch and precision it goes with the
inverse of the work per character; between others nothing is concluded.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gfrnn.campaign.plan import Planned
from gfrnn.campaign.runs import UNFINISHED, RunState, progress_of
from gfrnn.errors import GfrnnError
from gfrnn.models import CharLM
from gfrnn.models.precision import precisely, resolve
from gfrnn.models.seq2seq import Seq2Seq
from gfrnn.ops.doctor import cpu_name
from gfrnn.recipes import find
from gfrnn.sections import Section
from gfrnn.storage.run_folder import CONFIG
from gfrnn.tasks.programs.grid import LENGTHS, NESTINGS, PER_CELL
from gfrnn.tasks.world import flatten, unflatten
from gfrnn.training import optim
from gfrnn.training.budget import Budget
from gfrnn.training.config import Config
from gfrnn.training.loop import VALIDATIONS
from gfrnn.training.runlog import read_metrics

READING = 3  # a character that is only read costs a third of one that is learnt from
PROBE_SECONDS = 2.0
PROBE_RECIPE, PROBE_WORK = "hutter-gated-lstm", 5e6  # what is heavier than this is not tried: this recipe is


@dataclass(frozen=True)
class Size:
    """What a run has to do: updates, the characters they read, and those only read to validate and to evaluate."""

    updates: int
    characters: int
    validation: int
    evaluation: int


@dataclass(frozen=True)
class Estimate:
    """Seconds that are left, at so many characters per second, and how that is known."""

    seconds: float
    rate: float
    source: str


@functools.lru_cache(maxsize=16)
def task_of(task: str, data: Section) -> Any:
    """The task that reads this, with a model that does not matter."""
    name = "hutter-gated-lstm" if task == "hutter" else "programs-gated-lstm"
    return dataclasses.replace(find(name).config, data=data).build_task()


def text_of(plans: Sequence[Planned]) -> tuple[str | None, list[str]]:
    """The checksum of the text that the runs read (None where none does), and what is to be said about it."""
    texts = [run.config for run in plans if run.is_text]
    if not texts:
        return None, []
    task = task_of("hutter", texts[0].data)
    return str(task.identity()["sha256"]), task.notes()


def size_of(planned: Planned) -> Size:
    config = planned.config
    task = task_of(config.task, config.data)
    updates = Budget.of(config.run, task.characters, task.epoch, task.growth).updates or 1
    times = updates // config.run.validate_every if config.run.validate_every else VALIDATIONS
    if planned.is_text:
        whole, test = len(task.valid), len(task.corpus.split("test"))
        part = whole if task.validates_all() else config.options["validate_chars"]
        evaluation = test * planned.wants_test + (0 if task.validates_all() else whole)
    else:  # an answer is read once and written once
        each = 2 * task.characters / task.rows
        part = round(each * config.options["validate_programs"])
        evaluation = round(each * PER_CELL * len(NESTINGS) * len(LENGTHS))
    return Size(updates, task.growth.portions(updates) * task.characters, times * part, evaluation)


@functools.lru_cache(maxsize=256)
def work(task: str, model: Section) -> int:
    """Multiply-adds of one character, forward: every weight once, but for those a one-hot input only looks up."""
    kind: type[CharLM] | type[Seq2Seq] = CharLM if task == "hutter" else Seq2Seq
    built = kind(**dataclasses.asdict(model), device="meta")
    matrices = [(name, p.shape) for name, p in built.named_parameters() if p.dim() == 2]
    symbols = len(built.vocabulary) if isinstance(built, CharLM) else 0
    looked_up = sum(shape[0] * symbols for name, shape in matrices if "weight_ih" in name or "weight_ig" in name)
    return sum(shape.numel() for _, shape in matrices) - looked_up


class Rates:
    """Rates by what is read and what reads it: measured in this folder on this CPU with so many threads, or probed."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.threads = threads
        self.known: dict[tuple[str, Section, str], dict[Section, tuple[float, str]]] = {}
        longest: dict[tuple[Any, Section], float] = {}
        for path in sorted(folder.glob(f"*/{CONFIG}")):
            try:
                config = Config.load(path)
                run = RunState(path.parent, "stopped", **progress_of(path.parent, read_metrics(path.parent)))
            except (GfrnnError, OSError):  # the table says what is wrong with it
                continue
            what = (alike(config), config.model)
            here = run.cpu == cpu_name() and run.threads == threads
            if here and run.rate and run.seconds > longest.get(what, 0.0):
                longest[what] = run.seconds
                self.learn(config, run.rate, path.parent.name)

    def learn(self, config: Config, rate: float, source: str) -> None:
        self.known.setdefault(alike(config), {})[config.model] = (rate, source)

    def of(self, planned: Planned) -> tuple[float, str]:
        """Characters per second, and how that is known."""
        config = planned.config
        known = self.known.get(alike(config))
        if not known:
            tried = light(config)
            self.learn(tried, probe(tried, self.threads), "a probe")
            return self.of(planned)
        if config.model in known:
            rate, source = known[config.model]
            return rate, source if source == "a probe" else "measured"
        own = work(config.task, config.model)
        near = min(known, key=lambda model: abs(work(config.task, model) - own))
        rate, source = known[near]
        return rate * work(config.task, near) / own, f"scaled from {source}"


def reads(config: Config) -> Section:
    """What a run reads, wherever the text is."""
    return config.replace(data=None).data if "data" in config.options else config.data


def light(config: Config) -> Config:
    """The configuration, or one that reads the same with a model that a probe need not wait for."""
    heavy = config.task == "hutter" and work(config.task, config.model) > PROBE_WORK
    return dataclasses.replace(config, model=find(PROBE_RECIPE).config.model) if heavy else config


def alike(config: Config) -> tuple[str, Section, str]:
    """Of what rates compare: the task, what is read and how, and the precision of the products."""
    return config.task, reads(config), resolve(config.run.precision)


def probe(config: Config, threads: int) -> float:
    """Characters per second of a few updates on this machine, as it is at the moment."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        task, seed = config.build_task(), config.run.seed
        model = task.build_model(seed).train()
        optimizer = optim.build(config.optimizer, dict(model.named_parameters()))
        state, updates, started = None, 0, 0.0
        while updates < 5 or time.monotonic() - started < PROBE_SECONDS:
            if updates == 2:  # the first ones make room and choose kernels
                started = time.monotonic()
            with precisely(resolve(config.run.precision), model):
                nats, symbols, state = task.loss(model, task.batch(seed, updates, slice(0, task.rows)), state)
            state = unflatten(tuple(part.detach() for part in flatten(state)))
            (nats / symbols).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            updates += 1
        return float((updates - 2) * task.characters / (time.monotonic() - started))
    finally:
        torch.set_num_threads(before)


def estimate(planned: Planned, state: RunState, rates: Rates) -> Estimate | None:
    """What is left of a run; None when nothing is, or nothing can be done."""
    if state.state not in (*UNFINISHED, "running"):
        return None
    rate, source = rates.of(planned)
    size = size_of(planned)
    left = max(0.0, 1 - state.updates / size.updates) if state.state != "trained" else 0.0
    seconds = left * size.characters / rate + size.evaluation / rate / READING
    if "probe" in source:  # a run's own rate has its validations in it
        seconds += left * size.validation / rate / READING
    return Estimate(seconds, rate, source)


def in_all(seconds: Sequence[float], jobs: int) -> float:
    """When the last one ends if `jobs` at a time take the next one each.

    >>> in_all([3, 1, 1, 1], 2), in_all([3, 1], 1), in_all([], 2)
    (3.0, 4.0, 0.0)
    """
    free = [0.0] * jobs
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)
