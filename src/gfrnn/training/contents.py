"""What a checkpoint must hold to be this run's: the names, shapes and dtypes of its tensors, the kinds of its counters.

A manifest says that a checkpoint is what was written, and anybody can write one. The optimizer's kernels take the sizes
of the weights for those of everything else, so all is compared before anything is used.
"""

import math
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gfrnn.errors import DataError
from gfrnn.sections import LARGEST_WHOLE, fits
from gfrnn.storage.run_folder import MODEL, TRAINING, TRAINING_STATE
from gfrnn.storage.tensorfile import differences
from gfrnn.tasks.world import flatten
from gfrnn.training import optim
from gfrnn.training.checkpoint import Snapshot
from gfrnn.training.counters import Counters

if TYPE_CHECKING:
    from gfrnn.training.loop import Trainer

MERSENNE_WORDS = 624  # of the state of torch's generator


def check(trainer: "Trainer", snapshot: Snapshot) -> None:
    """Refuse, by the name of the file, what this trainer cannot have written."""
    folder = trainer.checkpoints.folder / f"step-{snapshot.step}"
    expected = expected_tensors(trainer, snapshot.tensors)
    model_said = differences(trainer.model.state_dict(), snapshot.model) or not_finite(snapshot.model)
    said = differences(expected, snapshot.tensors) or not_finite(snapshot.tensors)
    refuse(folder / MODEL, model_said)
    refuse(folder / TRAINING, said or wrong_generator(snapshot.tensors["rng"]))
    refuse(folder / TRAINING_STATE, wrong_counters(snapshot.counters))


def refuse(path: Path, why: str) -> None:
    if why:
        raise DataError(f"{path} is whole but not this run's: {why}")


def expected_tensors(trainer: "Trainer", found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors like those of train.safetensors. What is there only after an update may be missing, all of it."""
    parameters = trainer.named
    state = flatten(trainer.task.initial_state(trainer.model))
    optional: list[dict[str, Tensor]] = [{f"state.{i}": part for i, part in enumerate(state)}]
    for name, like in optim.expected_state(trainer.config.optimizer, parameters).items():
        optional.append({f"optimizer.{name}.{key}": tensor for key, tensor in like.items()})
    expected = {"rng": torch.get_rng_state()}
    expected |= {f"average.{name}": parameters[name] for name in trainer.averages.tensors}
    for group in optional:
        if not found.keys().isdisjoint(group):
            expected |= group
    return expected


def not_finite(tensors: dict[str, Tensor]) -> str:
    return next((f"{name} is not finite" for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), "")


def wrong_generator(state: Tensor) -> str:
    """Of its 624 numbers torch believes how many are left and where the next one is; these must not lead beyond them.

    The state begins with the seed (8 bytes), what is left (4), whether it was seeded (4), and the next (8).
    """
    left, next_one = int(state[8:12].view(torch.int32)), int(state[16:24].view(torch.int64))
    if 1 <= left <= MERSENNE_WORDS and 0 <= next_one <= MERSENNE_WORDS + 1 - left:
        return ""
    return "rng is no state of a random generator"


def wrong_counters(counters: dict[str, Any]) -> str:
    """What is wrong with train.json, in words; empty when nothing is."""
    hints = {**typing.get_type_hints(Counters), "step": int}
    for name, value in counters.items():
        if name not in hints:
            return f"{name} is unexpected"
        if name in ("identity", "explosions"):
            right = isinstance(value, dict)
        else:
            right = fits(value, hints[name]) and (value is None or -1 <= value <= LARGEST_WHOLE)
        if not right:
            return f"{name} cannot be {value!r:.80}"
    explosions = counters.get("explosions", {})
    norms, last = explosions.get("norms"), explosions.get("last")
    if not isinstance(norms, list) or not all(fits(norm, float) and math.isfinite(norm) for norm in norms):
        return "the norms in explosions are no list of numbers"
    return "" if fits(last, int | None) else f"the last of explosions cannot be {last!r:.80}"
