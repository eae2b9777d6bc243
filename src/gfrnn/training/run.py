"""A run folder: started, continued, or refused."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import closing, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

import gfrnn
from gfrnn.config import BUDGET, TASKS, Config, RunConfig, load_class
from gfrnn.errors import DataError, UsageError
from gfrnn.training import persist
from gfrnn.training.checkpoint import Checkpoints, lock
from gfrnn.training.distributed import join
from gfrnn.training.loop import Trainer
from gfrnn.training.progress import Progress
from gfrnn.training.runlog import CONFIG, METRICS, RunLog, environment, read_metrics, write_environment
from gfrnn.training.signals import leaving_at_once
from gfrnn.training.world import World

# May differ when a run is continued: they change what is written, or where the (same, it is checked) text is found.
FREE = {"data", *(field.name for field in fields(RunConfig))} - {"seed", *BUDGET}


def train(
    config: Config,
    out: Path,
    *,
    given: Iterable[str] = (),
    resume: str = "auto",
    quiet: bool = False,
) -> dict[str, Any]:
    """Train `config` in the folder `out`, or go on with what is there; returns what was reached.

    `given` names the options the user typed: they must agree with those the folder was started with. Where several
    processes train together only the first looks at the folder, and only it returns anything.
    """
    with join() as world:
        if world.size > 1:
            world.alike(origin(config), "a configuration or code")
        with (
            leaving_at_once(),
            lock(out) if world.first else nullcontext(),
            Progress(config.recipe, quiet, silent=not world.first) as progress,
        ):
            result = train_together(config, out, set(given), resume, progress, world)
        return result if world.first else {}


def train_together(
    config: Config, out: Path, given: set[str], resume: str, progress: Progress, world: World
) -> dict[str, Any]:
    checkpoints = Checkpoints(out, config.run.keep, progress.warn)

    def settled() -> dict[str, Any]:
        return settle(config, out, given, resume, checkpoints, progress).options

    options = world.from_first(settled, lambda options: json.dumps(options).encode(), json.loads)
    if "data" in given:  # every process's own way to it
        options["data"] = config.options["data"]
    config = config.replace(**options)
    task = load_class(TASKS[config.task])(config)
    if task.rows < world.size:
        raise UsageError(f"{task.rows} rows are too few for {world.size} processes: each needs a row of the minibatch")
    world.alike(task.identity(), "data")
    for note in task.notes():
        progress.warn(note)
    checkpoints.keep = config.run.keep
    if world.first:
        checkpoints.sweep()
    with closing(RunLog(out) if world.first else NoLog()) as log:
        trainer = Trainer(config, task, checkpoints, log, progress, world)
        snapshot = world.from_first(checkpoints.latest, persist.pack, persist.unpack)
        if snapshot is not None:
            persist.restore(trainer, snapshot)
        already_done = trainer.counters.done
        if world.first:
            config.save(out / CONFIG)
            announce(trainer, snapshot is None)
        trainer.run()
        return summary(trainer, already_done)


class NoLog(RunLog):
    """Of a process that is not the first."""

    def __init__(self) -> None:
        pass

    def write(self, kind: str, step: int, **values: Any) -> None:
        pass

    def close(self) -> None:
        pass


def origin(config: Config) -> dict[str, Any]:
    """What all processes must have been started with. Where each finds the data is its own affair; see `identity`."""
    here = Path(gfrnn.__file__).parent
    code = hashlib.sha256()
    for path in sorted(here.rglob("*.py")):
        code.update(path.read_bytes())
    options = {key: value for key, value in config.options.items() if key != "data"}
    versions = {"gfrnn": gfrnn.__version__, "torch": torch.__version__, "source": code.hexdigest()[:16]}
    return {"recipe": config.recipe, **options, **versions}


def announce(trainer: Trainer, fresh: bool) -> None:
    """Write down where the run begins, or goes on."""
    run, log = trainer.checkpoints.run, trainer.log
    together = {"processes": trainer.world.size} if trainer.world.size > 1 else {}
    if fresh:
        write_environment(run)
        parameters = sum(p.numel() for p in trainer.parameters)
        log.write("start", 0, recipe=trainer.config.recipe, parameters=parameters, **together)
        return
    if not trainer.counters.done:
        log.write("resume", trainer.step, environment=environment(), **together)
        trainer.progress.say(f"{run}: continuing at update {trainer.step}")
    else:  # a crash may have come between the last checkpoint and the removal of old ones
        trainer.checkpoints.prune(trainer.step, trainer.counters.best_step)
    persist.mend_best(trainer)


def settle(
    config: Config, out: Path, given: set[str], resume: str, checkpoints: Checkpoints, progress: Progress
) -> Config:
    """The configuration that will run: the folder's own where there is one, else `config`."""
    if resume not in ("auto", "never"):
        raise UsageError(f"resume is 'auto' or 'never', not {resume!r}")
    if (out / "model.safetensors").exists():
        raise UsageError(f"{out} holds a saved model, which would be taken for the run's own: choose another --out")
    stored = Config.load(out / CONFIG) if (out / CONFIG).exists() else None
    if not checkpoints.steps():
        if (out / "best").exists() or ((out / METRICS).exists() and any(r["step"] > 0 for r in read_metrics(out))):
            raise DataError(f"{out} holds a trained model or its records, but no checkpoint: choose another --out")
        return config  # nothing there, or stopped before anything was learnt
    if stored is None:
        raise DataError(f"{out} has checkpoints but no {CONFIG}: it is no whole run folder")
    if resume == "never":
        raise UsageError(f"{out} already holds a run: choose another --out, or continue it with --resume auto")
    if stored.task != config.task:
        raise UsageError(f"{out} was started as {stored.recipe}, not {config.recipe}: choose another --out")
    old, new = stored.options, config.options
    compared = set(new) if stored.recipe != config.recipe else given
    changed = {key for key in compared & set(new) if old[key] != new[key]}
    fixed = sorted(changed - FREE - set(BUDGET))
    if fixed or stored.recipe != config.recipe:
        said = "; ".join(f"{key} was {old[key]}, is {new[key]}" for key in fixed) or "only the name differs"
        raise UsageError(f"{out} was started as {stored.recipe} with other options ({said}): choose another --out")
    if changed & set(BUDGET):
        kept = ", ".join(f"{unit} {limit:g}" for unit, limit in stored.run.budget.items())
        progress.warn(f"{out}: keeping the budget this run was started with ({kept})")
    return stored.replace(**{key: new[key] for key in changed & FREE & given})


def summary(trainer: Trainer, already_done: bool) -> dict[str, Any]:
    """What the run came to; the best model is validated once more where training looked at a part only."""
    counters, task, out, world = trainer.counters, trainer.task, trainer.checkpoints.run, trainer.world
    result: dict[str, Any] = {
        "run": str(out),
        "recipe": trainer.config.recipe,
        "data": task.reads,
        "parameters": sum(p.numel() for p in trainer.parameters),
        "updates": trainer.step,
        "characters": counters.characters,
        "seconds": round(counters.seconds, 1),
        "best_update": counters.best_step,
        task.metric: counters.best,
        "validated_all": task.validates_all(),
        "halvings": counters.halvings,
        "skipped": counters.skipped,
        "already_done": already_done,
    }
    if not task.validates_all():
        trainer.progress.say("validating the best model on the whole split")
        best = type(trainer.model).from_pretrained(out) if world.first else task.build_model(trainer.seed)
        world.spread(best)
        metrics = task.validate(best, True, lambda: None, world)
        result |= {task.metric: metrics[task.metric], "validated_all": True}
        if world.first and all(record["kind"] != "final" for record in read_metrics(out)):
            trainer.log.write("final", trainer.step, **metrics)
    return result
