"""A run folder: started, continued, or refused."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

import gfrnn
from gfrnn.errors import DataError, NonFinite, UsageError
from gfrnn.models.device import find_device
from gfrnn.models.precision import precisely, resolve
from gfrnn.progress import Progress
from gfrnn.storage.run_folder import BEST, CONFIG, METRICS, MODEL, has_file
from gfrnn.tasks.world import World
from gfrnn.training import init as starts
from gfrnn.training import persist
from gfrnn.training.budget import Budget
from gfrnn.training.checkpoint import Checkpoints, leaving_nothing, lock
from gfrnn.training.config import BUDGET, Config, Limits, RunConfig
from gfrnn.training.distributed import join
from gfrnn.training.loop import Trainer
from gfrnn.training.plan import plan
from gfrnn.training.runlog import RunLog, environment, read_metrics, write_environment
from gfrnn.training.signals import leaving_at_once
from gfrnn.training.trackers import Trackers

# May differ when a run is continued: they change what is written, or where the (same, it is checked) text is found.
FREE = {"data", *(field.name for field in fields(RunConfig))} - {"seed", *BUDGET}


def train(
    config: Config,
    out: Path,
    *,
    given: Iterable[str] = (),
    resume: str = "auto",
    extend: bool = False,
    init: str | None = None,
    device: str = "cpu",
    shorter: str = "",
    trackers: Sequence[str] = (),
    progress: Callable[[str], Progress] = Progress,
) -> dict[str, Any]:
    """Train `config` in the folder `out`, or go on with what is there; returns what was reached.

    `given` names the options the user typed: they must agree with those the folder was started with. With `extend`
    a finished run gets the budget of `config`, which is larger than its own, and goes on. `init` names a saved model
    that a new run starts from. `device` is where this process trains; it may be another when a run is continued.
    Where several processes train together only the first looks at the folder, and only it returns anything. `shorter`
    is what a user could ask for instead of a run that takes long; `trackers` names those that are told what the log is
    told; `progress` makes what shows how far it is.
    """
    with join() as world:
        if world.size > 1:
            world.alike(origin(config), "a configuration or code")
        fresh = world.first and not out.exists()
        with (
            leaving_at_once(),
            lock(out) if world.first else nullcontext(),
            leaving_nothing(out) if fresh else nullcontext(),
            progress(config.recipe) as shown,
        ):
            if not world.first:
                shown.hush()
            place = find_device(device)
            if world.size > 1 and place.type != "cpu" and place.index is not None:
                raise UsageError(f"--device {device}: {world.size} processes each take their own, say {place.type}")
            result = train_together(
                config, out, set(given), resume, extend, init, place, shorter, trackers, shown, world
            )
        return result if world.first else {}


def train_together(
    asked: Config,
    out: Path,
    given: set[str],
    resume: str,
    extend: bool,
    init: str | None,
    device: torch.device,
    shorter: str,
    trackers: Sequence[str],
    progress: Progress,
    world: World,
) -> dict[str, Any]:
    checkpoints = Checkpoints(out, asked.run.keep, progress.warn)

    def settled() -> Config:
        return settle(asked, out, given, resume, extend, init, device, checkpoints, progress)

    config = world.from_first(
        settled,
        lambda config: json.dumps(config.to_mapping()).encode(),
        lambda content: Config.from_mapping(json.loads(content), "the first process's configuration"),
    )
    if "data" in given:  # every process's own way to it
        config = config.replace(data=asked.options["data"])
    task = config.build_task()
    if task.rows < world.size:
        raise UsageError(f"{task.rows} rows are too few for {world.size} processes: each needs a row of the minibatch")
    world.alike(task.identity(), "data")
    for note in task.notes():
        progress.warn(note)
    checkpoints.keep = config.run.keep
    if world.first:
        checkpoints.sweep()
    told = Trackers(trackers, out, config.options, progress.warn)
    with closing(RunLog(out, told) if world.first else NoLog()) as log:
        snapshot = world.from_first(checkpoints.latest, persist.pack, persist.unpack)
        start = starts.load(config) if snapshot is None and world.first else None  # the others get its weights
        trainer = Trainer(config, task, checkpoints, log, progress, world, start, device)
        if snapshot is not None:
            persist.restore(trainer, snapshot)
        if extend:
            lengthen(trainer, asked.run)
        already_done = trainer.finished
        if world.first:
            trainer.config.save(out / CONFIG)
            announce(trainer, snapshot is None, shorter)
        try:
            trainer.run()
        except NonFinite as error:
            log.write("diverged", trainer.step, why=str(error))
            raise
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


def announce(trainer: Trainer, fresh: bool, shorter: str = "") -> None:
    """Write down where the run begins, or goes on."""
    run, log = trainer.checkpoints.run, trainer.log
    together = {"processes": trainer.world.size} if trainer.world.size > 1 else {}
    if fresh:
        write_environment(run, trainer.device)
        parameters = sum(p.numel() for p in trainer.parameters)
        log.write("start", 0, **persist.origin(trainer), parameters=parameters, **together)
        trainer.progress.say(plan(trainer, shorter))
        return
    if not trainer.finished:
        precision = trainer.config.run.precision
        log.write("resume", trainer.step, environment=environment(trainer.device), precision=precision, **together)
        trainer.progress.say(f"{run}: continuing at update {trainer.step}")
    else:  # a crash may have come between the last checkpoint and the removal of old ones
        trainer.checkpoints.prune(trainer.step, trainer.counters.best_step)
    persist.mend_best(trainer)


def lengthen(trainer: Trainer, asked: Limits) -> None:
    """Give a finished run a larger budget: one of which less is used up."""
    config, run, used = trainer.config, trainer.checkpoints.run, (trainer.step, trainer.counters.seconds)
    if config.earlier and asked.budget == config.run.budget:
        return  # the same command again
    if not trainer.finished:
        where = f"it is at update {trainer.step:,}, its budget is {config.run.words}"
        raise UsageError(f"{run} is not finished ({where}): without --extend the same command continues it")
    larger = Budget.of(asked, trainer.task.characters, trainer.task.epoch, trainer.task.growth)
    if larger.fraction(*used) >= min(1.0, trainer.budget.fraction(*used)):
        budgets = f"{asked.words} is not more than the {config.run.words} it had"
        raise UsageError(f"--extend: {run} is finished, and {budgets}: a larger budget makes it go on")
    trainer.configure(config.extended(asked, *used))
    trainer.progress.say(f"{run}: extended from {config.run.words} to {asked.words}")


def settle(
    config: Config,
    out: Path,
    given: set[str],
    resume: str,
    extend: bool,
    init: str | None,
    device: torch.device,
    checkpoints: Checkpoints,
    progress: Progress,
) -> Config:
    """The configuration that will run: the folder's own where there is one, else `config`."""
    if resume not in ("auto", "never"):
        raise UsageError(f"resume is 'auto' or 'never', not {resume!r}")
    if has_file(out, MODEL):
        raise UsageError(f"{out} holds a saved model, which would be taken for the run's own: choose another --out")
    if extend and not given & set(BUDGET):
        raise UsageError("--extend needs the larger budget: give --updates, --epochs, --chars or --minutes")
    stored = Config.load(out / CONFIG) if (out / CONFIG).exists() else None
    if not checkpoints.steps():
        if (out / BEST).exists() or ((out / METRICS).exists() and any(r["step"] > 0 for r in read_metrics(out))):
            raise DataError(f"{out} holds a trained model or its records, but no checkpoint: choose another --out")
        if extend:
            raise UsageError(f"--extend: {out} holds no run that could go on")
        # Nothing there, or stopped before anything was learnt.
        if config.run.precision == "auto":
            config = config.replace(precision=resolve("auto", device.type))
        if init is None:
            return config
        config, changes = starts.adopt(config, init, given)
        if changes:
            progress.warn(f"{config.recipe} with the architecture of {init}: {changes}")
        return config
    if stored is None:
        raise DataError(f"{out} has checkpoints but no {CONFIG}: it is no whole run folder")
    if resume == "never":
        raise UsageError(f"{out} already holds a run: choose another --out, or continue it with --resume auto")
    if stored.task != config.task:
        raise UsageError(f"{out} was started as {stored.recipe}, not {config.recipe}: choose another --out")
    if init is not None:
        starts.check_same(stored.init, init, out)
    if config.run.precision == "auto":  # was decided when the run was started
        given = given - {"precision"}
    old, new = stored.options, config.options
    compared = set(new) if stored.recipe != config.recipe else given
    changed = {key for key in compared & set(new) if old[key] != new[key]}
    fixed = sorted(changed - FREE - set(BUDGET))
    if fixed or stored.recipe != config.recipe:
        said = "; ".join(f"{key} was {old[key]}, is {new[key]}" for key in fixed) or "only the name differs"
        raise UsageError(f"{out} was started as {stored.recipe} with other options ({said}): choose another --out")
    if changed & set(BUDGET) and not extend:
        how = "--extend gives it a larger one when it is finished"
        progress.warn(f"{out}: keeping the budget this run has ({stored.run.words}); {how}")
    if "precision" in changed & given:
        progress.warn(f"{out}: products were in {old['precision']} so far, from here on in {new['precision']}")
    return stored.replace(**{key: new[key] for key in changed & FREE & given})


def summary(trainer: Trainer, already_done: bool) -> dict[str, Any]:
    """What the run came to; the best model is validated on the whole split, once, where training looked at a part."""
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
        metrics = world.from_first(lambda: final_of(trainer), lambda m: json.dumps(m).encode(), json.loads)
        if metrics is None:
            metrics = validated_all(trainer)
            if world.first:
                trainer.log.write("final", trainer.step, **metrics)
        result |= {task.metric: metrics[task.metric], "validated_all": True}
    return result


def final_of(trainer: Trainer) -> dict[str, Any] | None:
    """What the run's log has of the whole split, if it was validated on it when it was finished."""
    records = read_metrics(trainer.checkpoints.run)
    return next((r for r in records if (r["kind"], r["step"]) == ("final", trainer.step)), None)


def validated_all(trainer: Trainer) -> dict[str, float]:
    """The best model on the whole split."""
    task, out, world = trainer.task, trainer.checkpoints.run, trainer.world
    trainer.progress.say("validating the best model on the whole split")
    best = type(trainer.model).from_pretrained(out) if world.first else task.build_model(trainer.seed)
    best.to(trainer.device)
    world.spread(best)
    with precisely(trainer.config.run.precision, best):
        return task.validate(best, True, lambda: None, world)
