"""One bench from start to end: its results as one JSON-able mapping, which is what is shown, drawn and saved."""

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from gfrnn.bench.plan import Plan
from gfrnn.bench.precision import PRECISIONS, settle
from gfrnn.bench.sections import RUN, Bench
from gfrnn.bench.targets import judge
from gfrnn.ops import cpu
from gfrnn.ops.doctor import facts
from gfrnn.training.runlog import commit

SCHEMA = 1


def run(
    plan: Plan, sections: Sequence[str], say: Callable[[str], None], precisions: tuple[str, ...] = PRECISIONS
) -> dict[str, Any]:
    """Run the sections in their own order."""
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    bench = Bench(plan, say, precisions=precisions)
    if plan.name == "quick":
        bench.notes.append(
            "quick: shorter sequences and fewer rounds than the targets are about; the full bench decides"
        )
    chosen = [name for name in RUN if name in sections]
    if "precision" in chosen:
        settle(bench)
    for name in chosen:
        say(f"{name} ...")
        RUN[name](bench)
    return {
        "schema": SCHEMA,
        "started": started.isoformat(timespec="seconds"),
        "seconds": time.monotonic() - clock,
        "commit": commit(),
        "environment": facts() | ({"torch_setting": bench.torch_setting} if bench.torch_setting else {}),
        "plan": asdict(plan),
        "sections": chosen,
        "checks": [asdict(check) for check in bench.checks],
        "groups": [group.to_mapping() for group in bench.groups],
        "memory": bench.memory,
        "bits_per_character": bench.bits_per_character,
        "targets": [verdict.to_mapping() for verdict in judge(bench.groups, cpu.multiplies_bfloat16())],
        "notes": bench.notes,
    }
