"""`gfrnn launch -n 2 train RECIPE ...`: processes of this machine that train together, started and watched by torchrun.

torchrun starts all of them again, up to --max-restarts times, when one dies. It knows no other reason to leave than
success and failure, so a process that is done, be it with an error, tells its exit code in a file and torchrun that all
is well: what would only fail again is not tried again, and the exit code arrives.
"""

import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

from gfrnn.cli import complain
from gfrnn.cli import main as gfrnn
from gfrnn.cli.child import stop_without_parent
from gfrnn.cli.options import Parser
from gfrnn.cli.train import parse_train
from gfrnn.errors import DataError, Interrupted, NonFinite, Preempted, UsageError
from gfrnn.this_python import running

FOLDER = "GFRNN_LAUNCH"  # in the environment: where exit codes are told
FINAL = {0, *(kind.exit_code for kind in (UsageError, DataError, NonFinite, Preempted, Interrupted))}
STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
SAVING_SECONDS = 300  # between a signal to stop and SIGKILL


def main(argv: list[str]) -> int:
    about = "Train in several processes of this machine; when one dies all start again from the last checkpoint."
    usage = "gfrnn launch [-n N] [--max-restarts N] train RECIPE [options]"
    parser = Parser(prog="gfrnn launch", usage=usage, description=about)
    parser.add_argument("-n", "--processes", type=int, help="how many [one for each core]")
    parser.add_argument("--max-restarts", type=int, default=3, help="starts after a process died [3]")
    if "train" not in argv and not {"-h", "--help"} & set(argv):
        raise UsageError(f"{usage}: what it starts is `train`")
    place = argv.index("train") if "train" in argv else len(argv)
    args = parser.parse_args(argv[:place])
    cores = os.cpu_count() or 1
    processes = cores if args.processes is None else args.processes
    if processes < 1:
        raise UsageError(f"-n must be at least 1, got {processes}")
    if args.max_restarts < 0:
        raise UsageError(f"--max-restarts must be at least 0, got {args.max_restarts}")
    parse_train(argv[place + 1 :])  # what is wrong there is said once, and before anything is started
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // processes)))
    with tempfile.TemporaryDirectory(prefix="gfrnn-launch-") as folder:
        return watch(argv[place:], processes, args.max_restarts, Path(folder))


def watch(words: list[str], processes: int, restarts: int, folder: Path) -> int:
    """Let torchrun run `gfrnn WORDS` so many times at once; the exit code of all."""
    # Its store must not be shared with the workers: after a worker's death the restart would hang more often than not.
    os.environ |= {FOLDER: str(folder), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(SAVING_SECONDS)
    from gfrnn.training.distributed import torchrun

    logging.disable(logging.CRITICAL)  # what torchrun says is for its developers
    how = ["--standalone", f"--nproc-per-node={processes}", f"--max-restarts={restarts}", "--log-dir", os.devnull]
    failures, stopped_by = torchrun([*how, "--no-python", *running("gfrnn.cli.launch"), *words], STOP)
    if failures:
        return complain(*obituary(failures, restarts))
    code = told(folder)
    if code is None and stopped_by:  # before training began
        return Interrupted.exit_code if stopped_by == signal.SIGINT else Preempted.exit_code
    return 1 if code is None else code


def told(folder: Path) -> int | None:
    """The exit code of the processes that are done: that of the first."""
    codes = {int(path.name): int(path.read_text()) for path in folder.iterdir()}
    return codes[min(codes)] if codes else None


def obituary(codes: dict[int, int], restarts: int) -> tuple[str, int]:
    """What to say when a process has died once too often, and the exit code.

    >>> obituary({0: 1, 1: -9}, 0)[0]
    'process 1 was killed (SIGKILL) and no restart is left of 0: the same command continues from the last checkpoint'
    """
    killed = [rank for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM] or list(codes)
    rank, code = killed[0], codes[killed[0]]
    how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"failed with exit code {code}"
    where = f"no restart is left of {restarts}: the same command continues from the last checkpoint"
    return f"process {rank} {how} and {where}", Preempted.exit_code if code < 0 else code


def process(words: list[str]) -> int:
    """One of the processes: `gfrnn WORDS`, and its exit code told."""
    stop_without_parent()
    rank, restart = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    if rank == "0" and restart != "0":
        print(f"start {restart} of {os.environ['TORCHELASTIC_MAX_RESTARTS']} after a process died", flush=True)
    code = gfrnn(words)
    if code not in FINAL:
        return code
    (Path(os.environ[FOLDER]) / rank).write_text(str(code))
    return 0


if __name__ == "__main__":
    code = process(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # Python needs seconds to tidy up after torch, and whoever stops us waits
