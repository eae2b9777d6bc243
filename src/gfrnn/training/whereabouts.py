"""Which of several processes this is, from the environment: torchrun sets it, and so can srun or mpirun."""

import os
from dataclasses import dataclass

from gfrnn.errors import UsageError

TIME_LIMIT = 120.0  # seconds a process waits for the others; $GFRNN_TIMEOUT says otherwise


@dataclass(frozen=True)
class Place:
    """One of `size` processes that meet at host:port and wait `seconds` for each other."""

    rank: int
    size: int
    meeting: str
    seconds: float


def find() -> Place | None:
    """Where this process stands; None when it is alone."""
    present = [name for name in ("RANK", "WORLD_SIZE") if os.environ.get(name)]
    if not present:
        return None
    if len(present) == 1:
        other = "RANK" if present == ["WORLD_SIZE"] else "WORLD_SIZE"
        raise UsageError(f"{present[0]} is set but {other} is not: a process of several has both (torchrun sets them)")
    rank, size = whole_number("RANK"), whole_number("WORLD_SIZE")
    if not 0 <= rank < size:
        raise UsageError(f"RANK is {rank}, but of WORLD_SIZE={size} processes the ranks are 0 to {size - 1}")
    if size == 1:
        return None
    absent = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if absent:
        raise UsageError(f"{' and '.join(absent)} not set: where do the {size} processes meet? (torchrun sets it)")
    port = whole_number("MASTER_PORT")
    if not 0 < port < 1 << 16:
        raise UsageError(f"MASTER_PORT must be 1 to 65535, got {port}")
    return Place(rank, size, f"{os.environ['MASTER_ADDR']}:{port}", time_limit())


def whole_number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise UsageError(f"{name} must be a whole number, got {os.environ[name]!r}") from None


def time_limit() -> float:
    text = os.environ.get("GFRNN_TIMEOUT", str(TIME_LIMIT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86400:
        raise UsageError(f"GFRNN_TIMEOUT must be seconds, from 1 to 86400, got {text!r}")
    return seconds
