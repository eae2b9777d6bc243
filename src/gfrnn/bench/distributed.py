"""`gfrnn bench --distributed`: the same updates by one process with one and with two threads, and by two processes.

The contenders stay alive and take turns; each update is the training loop's own (minibatch, forward, backward, sum of
the gradients, optimizer). Before anything is timed they must agree on the loss and the gradient norm of the first
update. The bytes sent are those the kernel was handed by the first process, divided by the updates.
"""

import datetime
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gfrnn.bench.plan import RECIPE, Plan
from gfrnn.errors import GfrnnError
from gfrnn.this_python import running

SHAPES = {"full": ((16, 50), (32, 50), (100, 100)), "quick": ((16, 50),)}  # rows x steps of the global minibatch
CHARACTERS = 4000  # per call, at least
AGREE = 1e-4  # relative: sums in another order, of a loss and of a norm
ONE, TWO_THREADS, TWO_PROCESSES = "1 process x 1 thread", "1 process x 2 threads", "2 processes x 1 thread"


class Team:
    """Processes that train together and do so many updates when told."""

    def __init__(self, size: int, rows: int, length: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(size)}
        quiet = {"OMP_WAIT_POLICY": "passive", "TORCH_CPP_LOG_LEVEL": "FATAL"}  # who waits must not spin
        command = [*running("gfrnn.bench.distributed"), str(rows), str(length)]
        self.members = [
            subprocess.Popen(
                command,
                env={**os.environ, **quiet, **place, "RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *error: object) -> None:
        for member in self.members:
            member.kill()
            member.communicate()

    def update(self, updates: int, threads: int) -> dict[str, Any]:
        """Do `updates`; what the first process says of them."""
        for member in self.members:
            assert member.stdin is not None
            member.stdin.write(f"{updates} {threads}\n")
            member.stdin.flush()
        lines = [member.stdout.readline() for member in self.members if member.stdout is not None]
        if not all(lines):
            raise GfrnnError("a process of the bench ended before its work was done")
        return json.loads(lines[0])


def run(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything measured, JSON-able."""
    from gfrnn.bench.sections import Bench
    from gfrnn.ops.doctor import facts
    from gfrnn.training.runlog import commit

    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    bench = Bench(plan, say)
    traffic = [measure(bench, rows, length) for rows, length in SHAPES[plan.name]]
    return {
        "schema": 1,
        "started": started.isoformat(timespec="seconds"),
        "seconds": time.monotonic() - clock,
        "commit": commit(),
        "environment": facts(),
        "plan": asdict(plan),
        "recipe": RECIPE,
        "groups": [group.to_mapping() for group in bench.groups],
        "over_one": [over_one(group) for group in bench.groups],
        "traffic": traffic,
    }


def measure(bench: Any, rows: int, length: int) -> dict[str, Any]:
    """One shape: the contenders agree, take turns, and tell what they sent."""
    from gfrnn.bench.clock import Entry
    from gfrnn.bench.equality import Unequal

    bench.say(f"distributed: {rows} x {length}: starting three processes")
    with ExitStack() as stack:
        alone, two = (stack.enter_context(Team(size, rows, length)) for size in (1, 2))
        expected, found = alone.update(1, 1), two.update(1, 1)
        for what in ("nats", "norm"):
            if not math.isclose(found[what], expected[what], rel_tol=AGREE):
                raise Unequal(f"two processes do not train as one does: {what} {found[what]}, not {expected[what]}")
        updates = max(1, -(-CHARACTERS // (rows * length)))

        def entry(name: str, team: Team, threads: int) -> Entry:
            characters, parameters = updates * rows * length, expected["parameters"]
            return Entry(name, lambda: team.update(updates, threads), characters, parameters=parameters)

        entries = [entry(ONE, alone, 1), entry(TWO_THREADS, alone, 2), entry(TWO_PROCESSES, two, 1)]
        bench.time("distributed", f"{RECIPE} {rows} x {length}", entries, rows=rows, steps=length, updates=updates)
        sent = two.update(10, 1)["sent"]
    return {"rows": rows, "steps": length, "gradient_bytes": 4 * expected["parameters"], "sent_bytes": sent}


def over_one(group: Any) -> dict[str, Any]:
    """How many times as fast as one process with one thread, round by round."""
    return {name: asdict(group.ratio(name, ONE, "characters")) for name in (TWO_THREADS, TWO_PROCESSES)}


def as_text(results: dict[str, Any]) -> str:
    from gfrnn.bench.output import plain_table, rate, spread, to_text

    where = results["environment"]
    lines: list[Any] = [
        f"gfrnn {where['gfrnn']} ({(results['commit'] or 'no commit')[:12]}), torch {where['torch']}, {where['cpu']}; "
        f"{results['recipe']}, {results['plan']['name']} bench, {results['seconds']:.0f} s",
        "Contenders took turns; median [quartiles] of the rounds, ratios taken round by round.\n",
    ]
    table = plain_table("whole updates", "rows x steps", "contender", "ms an update", "rate", "x one", "rounds", left=2)
    for group, ratios in zip(results["groups"], results["over_one"], strict=True):
        about = group["about"]
        for number, timed in enumerate(group["timed"]):
            table.add_row(
                f"{about['rows']} x {about['steps']}" if number == 0 else "",
                timed["name"],
                spread(timed["seconds_spread"], 1000 / about["updates"], "{:.4g}"),
                rate(timed),
                spread(ratios[timed["name"]], 1, "{:.2f}") if timed["name"] in ratios else "",
                str(len(timed["seconds"])),
            )
    for row in results["traffic"]:
        sent = "unknown" if row["sent_bytes"] is None else f"{row['sent_bytes'] / 1e6:.3f} MB"
        lines_of = f"{row['rows']} x {row['steps']}, 2 processes: each sent {sent} an update"
        lines.append(f"{lines_of}; the gradients are {row['gradient_bytes'] / 1e6:.3f} MB")
    return to_text([*lines[:2], table, "", *lines[2:]])


def save(results: dict[str, Any], folder: Path) -> None:
    from gfrnn.storage.files import replace_file

    replace_file(folder / "scaling.json", (json.dumps(results, indent=1) + "\n").encode())
    replace_file(folder / "scaling.txt", (as_text(results) + "\n").encode())


def work(rows: int, length: int) -> None:
    """One of the processes: reads `updates threads` line by line, and answers when they are done."""
    import torch

    from gfrnn.bench.plan import LSTM
    from gfrnn.bench.updates import steady
    from gfrnn.progress import Progress
    from gfrnn.training.checkpoint import Checkpoints
    from gfrnn.training.distributed import join
    from gfrnn.training.loop import Trainer
    from gfrnn.training.run import NoLog

    config = steady(rows, length, LSTM, "float32")
    with join() as world:
        nowhere = Checkpoints(Path("nowhere"))
        trainer = Trainer(config, config.build_task(), nowhere, NoLog(), Progress(), world)
        trainer.model.train()
        for line in sys.stdin:
            updates, threads = map(int, line.split())
            torch.set_num_threads(threads)
            before, nats = written(), trainer.counters.nats
            for _ in range(updates):
                trainer.agree()
                trainer.update()
            after = written()
            answer = {
                "nats": trainer.counters.nats - nats,
                "norm": trainer.counters.norm,
                "parameters": sum(p.numel() for p in trainer.parameters),
                "sent": None if before is None or after is None else (after - before) / updates,
            }
            print(json.dumps(answer), flush=True)


def written() -> int | None:
    """Bytes this process has written, to sockets too (Linux)."""
    try:
        lines: Sequence[str] = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


if __name__ == "__main__":
    work(*map(int, sys.argv[1:]))
