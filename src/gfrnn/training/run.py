"""A run folder: started, continued, or refused."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from gfrnn.config import BUDGET, TASKS, Config, RunConfig, load_class
from gfrnn.errors import DataError, UsageError
from gfrnn.training import persist
from gfrnn.training.checkpoint import Checkpoints, lock
from gfrnn.training.loop import Trainer
from gfrnn.training.progress import Progress
from gfrnn.training.runlog import CONFIG, RunLog, environment, read_metrics, write_environment
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

    `given` names the options the user typed: they must agree with those the folder was started with.
    """
    with lock(out), Progress(config.recipe, quiet) as progress:
        checkpoints = Checkpoints(out, config.run.keep, progress.say)
        config = settle(config, out, set(given), resume, checkpoints, progress)
        task = load_class(TASKS[config.task])(config)
        for note in task.notes():
            progress.say(note)
        checkpoints.keep = config.run.keep
        checkpoints.sweep()
        with closing(RunLog(out)) as log:
            trainer = Trainer(config, task, checkpoints, log, progress, World())
            snapshot = checkpoints.latest()
            if snapshot is not None:
                persist.restore(trainer, snapshot)
            already_done = trainer.counters.done
            config.save(out / CONFIG)
            announce(trainer, snapshot is None)
            trainer.run()
            return summary(trainer, already_done)


def announce(trainer: Trainer, fresh: bool) -> None:
    """Write down where the run begins, or goes on."""
    run, log = trainer.checkpoints.run, trainer.log
    if fresh:
        write_environment(run)
        log.write("start", 0, recipe=trainer.config.recipe, parameters=sum(p.numel() for p in trainer.parameters))
        return
    if not trainer.counters.done:
        log.write("resume", trainer.step, environment=environment())
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
    if not (out / CONFIG).exists():
        if checkpoints.steps():
            raise DataError(f"{out} has checkpoints but no {CONFIG}: it is no whole run folder")
        return config
    if resume == "never" and checkpoints.steps():
        raise UsageError(f"{out} already holds a run: choose another --out, or continue it with --resume auto")
    stored = Config.load(out / CONFIG)
    if not checkpoints.steps():
        return config  # stopped before anything was learnt
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
        progress.say(f"{out}: keeping the budget this run was started with ({kept})")
    return stored.replace(**{key: new[key] for key in changed & FREE & given})


def summary(trainer: Trainer, already_done: bool) -> dict[str, Any]:
    """What the run came to; the best model is validated once more where training looked at a part only."""
    counters, task, out = trainer.counters, trainer.task, trainer.checkpoints.run
    result: dict[str, Any] = {
        "run": str(out),
        "recipe": trainer.config.recipe,
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
        best = type(trainer.model).from_pretrained(out)
        metrics = task.validate(best, True, lambda: None)
        result |= {task.metric: metrics[task.metric], "validated_all": True}
        if all(record["kind"] != "final" for record in read_metrics(out)):
            trainer.log.write("final", trainer.step, **metrics)
    return result
