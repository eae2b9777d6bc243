"""Whether torch can do a piece of work on this CPU, asked of a copy of this process: where it cannot, it may be killed.

oneDNN, which multiplies in bfloat16 for torch, uses AMX on every CPU that names it; on some it dies of that, and works
without. How much of a CPU to use it reads from the environment once, before its first work in a process. A copy of this
process shares its past, so what the copy could do with another setting, this one can.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

VARIABLE, WITHOUT_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
OLD_VARIABLE = "DNNL_MAX_CPU_ISA"  # which oneDNN reads as well
PATIENCE = 300.0  # seconds for one piece of work
COPIES = sys.platform == "linux"  # elsewhere a forked process may fail for reasons of its own
Work = Callable[[], Any]
Name = TypeVar("Name", bound=Hashable)


def why_not(work: Work, setting: Mapping[str, str] | None = None) -> str:
    """Why this process cannot do `work` (with a setting of the environment) in one sentence; nothing, if it can."""
    if not COPIES:
        return complaint(work)
    return meaning(*outcome(work, setting or {}))


def complaint(work: Work) -> str:
    """The first sentence of torch's error, if there is one."""
    try:
        work()
    except RuntimeError as error:
        return str(error).split(". ")[0]
    return ""


def outcome(work: Work, setting: Mapping[str, str]) -> tuple[str, int | None]:
    """What a copy of this process said of `work`, and its exit code; none, if it had to be stopped."""
    context = multiprocessing.get_context("fork")
    heard, said = context.Pipe(duplex=False)
    child = context.Process(target=answer, args=(work, dict(setting), said))
    with warnings.catch_warnings(), heard:
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads: the copy uses none
        child.start()
        said.close()
        child.join(PATIENCE)
        code = child.exitcode
        if code is None:
            child.kill()
            child.join()
        with contextlib.suppress(EOFError):
            return (heard.recv() if heard.poll() else "", code)
    return "", code


def answer(work: Work, setting: Mapping[str, str], said: Connection) -> None:
    """The copy: one thread, since the others were not copied, and silent when it dies."""
    import resource  # not on every system

    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    os.dup2(sys.stderr.fileno(), 2)
    os.environ.update(setting)
    torch.set_num_threads(1)
    said.send(complaint(work))


def meaning(said: str, code: int | None) -> str:
    """
    >>> meaning("", 0), meaning("could not create a primitive", 0)
    ('', 'could not create a primitive')
    >>> meaning("", -4)
    'torch dies of it on this CPU: SIGILL (Illegal instruction)'
    >>> meaning("", None)
    'torch was not done with it after 300 seconds'
    """
    if code is None:
        return f"torch was not done with it after {PATIENCE:.0f} seconds"
    if code < 0:
        return f"torch dies of it on this CPU: {signal.Signals(-code).name} ({signal.strsignal(-code)})"
    return said or (f"the process that tried it ended with exit code {code}" if code else "")


def settle(works: Mapping[Name, Work]) -> tuple[dict[Name, str], str]:
    """Why each of `works` cannot be done, or nothing; and what is set in the environment for that, and why.

    oneDNN is kept from AMX, from here on, if more of `works` can be done then. Who set it before is not contradicted.
    """
    found = {name: why_not(work) for name, work in works.items()}
    given = next((name for name in (VARIABLE, OLD_VARIABLE) if os.environ.get(name)), None)
    if given is not None:
        return found, f"{given} is {os.environ[given]}, as it was before the bench began"
    if not COPIES or not any(found.values()):
        return found, ""
    without = {name: why_not(work, {VARIABLE: WITHOUT_AMX}) for name, work in works.items()}
    if sum(map(bool, without.values())) >= sum(map(bool, found.values())):
        return found, ""
    os.environ[VARIABLE] = WITHOUT_AMX
    name, why = next((name, why) for name, why in found.items() if why and not without[name])
    return without, (
        f"torch runs with {VARIABLE}={WITHOUT_AMX}, which keeps it from AMX, since {name} fails otherwise: {why}"
    )
