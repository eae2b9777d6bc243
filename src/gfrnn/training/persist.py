"""What a trainer carries from update to update, as a checkpoint and back."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gfrnn.errors import DataError, GfrnnError, NonFinite
from gfrnn.storage.tensorfile import pack_json, pack_tensors, unpack_json, unpack_tensors
from gfrnn.tasks.world import flatten, unflatten
from gfrnn.training import contents, optim
from gfrnn.training.checkpoint import Snapshot
from gfrnn.training.counters import Counters
from gfrnn.training.runlog import read_metrics

if TYPE_CHECKING:
    from gfrnn.training.loop import Trainer


def take(trainer: "Trainer") -> Snapshot:
    """Everything, gathered from all processes. Nothing that is not finite is ever saved."""
    state = trainer.world.gather(flatten(trainer.state), trainer.task.rows)
    counters = trainer.counters
    counters.seconds, counters.explosions = trainer.seconds(), trainer.explosions.to_mapping()
    tensors = {f"optimizer.{k}": v for k, v in optim.optimizer_tensors(trainer.optimizer, trainer.named).items()}
    tensors |= {f"state.{i}": part for i, part in enumerate(state)}
    tensors |= {f"average.{name}": tensor for name, tensor in trainer.averages.tensors.items()}
    tensors["rng"] = torch.get_rng_state()
    model = trainer.model.state_dict()
    wrong = [name for name, tensor in (*model.items(), *tensors.items()) if not bool(tensor.isfinite().all())]
    if wrong:
        where = f"{trainer.checkpoints.run}: at update {trainer.step} {wrong[0]} is not finite"
        raise NonFinite(f"{where}; the last checkpoint is from before")
    return Snapshot(trainer.step, model, trainer.model.full_config(), tensors, asdict(counters))


def pack(snapshot: Snapshot | None) -> bytes:
    """For other processes; they learn of no snapshot too."""
    if snapshot is None:
        return b""
    model, tensors = pack_tensors(snapshot.model), pack_tensors(snapshot.tensors)
    about = {"step": snapshot.step, "config": snapshot.config, "counters": snapshot.counters}
    header = pack_json({**about, "sizes": [len(model), len(tensors)]})
    return len(header).to_bytes(8, "little") + header + model + tensors


def unpack(content: bytes) -> Snapshot | None:
    if not content:
        return None
    name = "the checkpoint from the first process"
    start = 8 + int.from_bytes(content[:8], "little")
    about = unpack_json(content[8:start], name)
    model, tensors = about.pop("sizes")
    parts = content[start : start + model], content[start + model : start + model + tensors]
    return Snapshot(model=unpack_tensors(parts[0], name), tensors=unpack_tensors(parts[1], name), **about)


def restore(trainer: "Trainer", snapshot: Snapshot) -> None:
    """Make the trainer what it was when the snapshot was taken."""
    try:
        put_back(trainer, snapshot)
    except GfrnnError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        where = f"{trainer.checkpoints.folder}/step-{snapshot.step}"
        raise DataError(f"{where} is whole but not this run's: {type(error).__name__}: {error}") from error


def put_back(trainer: "Trainer", snapshot: Snapshot) -> None:
    run, config = trainer.checkpoints.run, trainer.model.full_config()
    changed = [key for key in config if snapshot.config.get(key) != config[key]]
    if changed:
        said = "; ".join(f"{key} was {snapshot.config.get(key)}, is {config[key]}" for key in changed)
        raise DataError(f"{run} holds a model of another architecture: {said}")
    contents.check(trainer, snapshot)
    saved = dict(snapshot.counters)
    trainer.step = trainer.first_step = saved.pop("step")
    trainer.counters = Counters(**saved)
    if not 0 <= trainer.counters.stage <= trainer.stages.last:
        raise DataError(f"{run}: its checkpoint is of extension {trainer.counters.stage}, which config.yaml lacks")
    now = trainer.task.identity()
    if trainer.counters.identity != now:
        raise DataError(f"the data changed since {run} was started: it was {trainer.counters.identity}, is {now}")
    trainer.model.load_state_dict(snapshot.model)

    def section(prefix: str) -> dict[str, torch.Tensor]:
        return {k.removeprefix(prefix): v for k, v in snapshot.tensors.items() if k.startswith(prefix)}

    optim.restore_optimizer(trainer.optimizer, trainer.named, section("optimizer."))
    averages = section("average.")
    device = trainer.device
    trainer.averages.tensors = {name: averages[name].to(device) for name in trainer.named if name in averages}
    parts = section("state.")
    trainer.state = unflatten(trainer.world.own(tuple(parts[key].to(device) for key in sorted(parts))))
    trainer.explosions.restore(trainer.counters.explosions)
    torch.set_rng_state(snapshot.tensors["rng"])
    trainer.start_clock()


def write_best(trainer: "Trainer", metrics: dict[str, Any]) -> None:
    """The weights that were just validated, as a model folder."""
    counters = trainer.counters
    training = {**origin(trainer), "step": trainer.step, "characters": counters.characters, **metrics}
    config = {**trainer.model.full_config(), "training": {**training, "data": counters.identity}}
    trainer.checkpoints.write_best(config, trainer.averages.of(trainer.model))


def origin(trainer: "Trainer") -> dict[str, Any]:
    """By which recipe, and from which saved model if from one."""
    init = trainer.config.init
    started = {} if init is None else {"init": {"model": init.model, "sha256": init.sha256}}
    precision = trainer.config.run.precision
    return {"recipe": trainer.config.recipe, **started, **({} if precision == "float32" else {"precision": precision})}


def mend_best(trainer: "Trainer") -> None:
    """After a crash between a checkpoint and its best/: make best/ from the checkpoint, which was kept for that."""
    best_step, checkpoints = trainer.counters.best_step, trainer.checkpoints
    config = checkpoints.best_config()
    if best_step is None or (config is not None and config.get("training", {}).get("step") == best_step):
        return
    try:
        snapshot = checkpoints.load(best_step)
        contents.check(trainer, snapshot)
    except DataError as error:
        trainer.progress.warn(f"best/ cannot be mended, it will be at the next improvement: {error}")
        return
    averages = {k.removeprefix("average."): v for k, v in snapshot.tensors.items() if k.startswith("average.")}
    training = {**origin(trainer), "step": best_step, "characters": snapshot.counters["characters"]}
    training |= {trainer.task.metric: snapshot.counters["best"], **measured(checkpoints.run, best_step)}
    training["data"] = snapshot.counters["identity"]
    checkpoints.write_best({**snapshot.config, "training": training}, {**snapshot.model, **averages})


def measured(run: Path, step: int) -> dict[str, Any]:
    """What the validation at update `step` found, from the run's record."""
    found = [record for record in read_metrics(run) if (record["kind"], record["step"]) == ("valid", step)]
    about = {"kind", "step", "characters", "seconds", "best"}
    return {key: value for record in found[-1:] for key, value in record.items() if key not in about}
