"""The names inside a run folder and a model folder, once."""

from pathlib import Path

CONFIG, ENVIRONMENT, METRICS = "config.yaml", "env.json", "metrics.jsonl"
CHECKPOINTS, LATEST, LOCK = "checkpoints", "LATEST", "lock"
BEST, BEST_PART, BEST_OLD = "best", "best.tmp", "best.old"
STDERR = "stderr.txt"  # what the processes said that a campaign trained and evaluated the run with
GRID, GRID_QUICK = "grid.json", "grid-quick.json"  # accuracies of a program model, kept beside it
DYNAMIC = "dynamic.json"  # values chosen for dynamic evaluation, see tasks/text/dynamic_choice.py

MODEL, MODEL_CONFIG = "model.safetensors", "config.json"
MODEL_FILES = (MODEL, MODEL_CONFIG)
COMMITTED = ".new"  # in a model folder that is being overwritten: the new files, on their way to their places
TRAINING, TRAINING_STATE = "train.safetensors", "train.json"
CHECKPOINT_FILES = (*MODEL_FILES, TRAINING, TRAINING_STATE)


def blocks_name(split: str, dynamic: bool = False) -> str:
    """The code lengths of a split's blocks, see tasks/text/blocks.py."""
    return f"blocks-{split}{'-dynamic' if dynamic else ''}.safetensors"


def model_inside(folder: Path) -> Path | None:
    """The model folder that a folder is or, being a run folder, has."""
    candidates = (folder, folder / BEST, folder / BEST_OLD)
    return next((candidate for candidate in candidates if has_file(candidate, MODEL)), None)


def has_file(folder: Path, name: str) -> bool:
    """Whether a model or a checkpoint has a file; asked in the order in which `tensorfile.replace_files` moves it."""
    return (folder / COMMITTED / name).exists() or (folder / name).exists()


def file_in(folder: Path, name: str) -> Path:
    """Where a file of a model or a checkpoint is: see `tensorfile.replace_files`."""
    committed = folder / COMMITTED / name
    return committed if committed.exists() else folder / name
