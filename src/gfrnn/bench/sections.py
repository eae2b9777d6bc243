"""The sections of a bench. Each checks its contenders, lets them take turns, and adds groups to the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from gfrnn import ops
from gfrnn.bench import contenders, generation, machine, precision
from gfrnn.bench import memory as memory_of
from gfrnn.bench import updates as whole_updates
from gfrnn.bench.accounting import bytes_per_character, flops, must_keep, parameters
from gfrnn.bench.clock import Entry, Group, time_in_turn
from gfrnn.bench.contenders import LOOP, batch, build, count, equal_parameters, equal_units, named_peers
from gfrnn.bench.equality import Check, check
from gfrnn.bench.loop import HandLoop
from gfrnn.bench.plan import LSTM, Plan, Size, small_name
from gfrnn.models.char_lm import CharLM

Action = Callable[[nn.Module, Tensor, Tensor], None]


@dataclass
class Bench:
    """What is planned, and what was found so far."""

    plan: Plan
    say: Callable[[str], None] = lambda sentence: None
    groups: list[Group] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    bits_per_character: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    precisions: tuple[str, ...] = precision.PRECISIONS  # of the section that compares them
    torch_cannot: dict[str, str] | None = None  # by name, why; none before precision.settle has asked
    torch_setting: str = ""  # of the environment, and why

    def __post_init__(self) -> None:
        missing = {name: ops.BACKENDS[name].why_unavailable() for name in self.plan.backends}
        self.backends = [name for name, reasons in missing.items() if not reasons]
        self.checked: dict[tuple[str, str, int], int] = {}  # model, contender, rows -> steps
        self.notes += [f"backend '{name}' is not measured: {'; '.join(why)}" for name, why in missing.items() if why]

    @property
    def ours(self) -> str:
        """The fastest backend there is."""
        return self.backends[0]

    def time(self, section: str, name: str, entries: Sequence[Entry], **about: Any) -> None:
        plan = self.plan

        def tick(done: int) -> None:
            self.say(f"{section}: {name}: round {done} of {plan.repeats}")

        timed = time_in_turn(entries, plan.repeats, plan.least_repeats, plan.group_seconds, tick)
        self.groups.append(Group(section, name, timed, about))

    def models(self, size: Size, names: Sequence[str], *shapes: tuple[int, int]) -> dict[str, nn.Module]:
        """The contenders, each equal to the reference in every shape (rows, steps) they are about to be timed in."""
        built = {name: build(name, size) for name in names}
        for rows, steps in shapes:
            self.check(size, built, rows, steps)
        return built

    def check(self, size: Size, built: dict[str, nn.Module], rows: int, steps: int) -> None:
        bought = int(self.plan.check_flops / flops(size, rows, training=True))
        steps = max(2, min(steps, bought))
        todo = {
            name: model
            for name, model in built.items()
            if isinstance(model, CharLM | HandLoop) and self.checked.get((str(size), name, rows), 0) < steps
        }
        if todo:
            self.say(f"checking {', '.join(todo)} of {size} against the reference, {rows} rows x {steps} steps")
            self.checks += check(str(size), contenders.our_model(size), todo, *batch(rows, steps))
            self.checked |= {(str(size), name, rows): steps for name in todo}

    def peers(self, size: Size) -> list[str]:
        """torch's own layers: at equal units, at equal parameters, and the one a target names."""
        return list(dict.fromkeys([equal_units(size), equal_parameters(size), *named_peers(size)]))

    def line_up(self, size: Size) -> list[str]:
        if self.plan.full_line_up:
            return [*self.backends, LOOP, *self.peers(size)]
        return [self.ours, LOOP, *named_peers(size)]


def entry(name: str, model: nn.Module, size: Size, rows: int, steps: int, action: Action) -> Entry:
    """`action` on one minibatch; the useful operations are counted for our model only."""
    ids, targets = batch(rows, steps)
    training = action is contenders.train_step
    same = isinstance(model, CharLM | HandLoop)
    return Entry(
        name,
        lambda: action(model, ids, targets),
        characters=rows * steps,
        flops=flops(size, rows * steps, training) if same else 0.0,
        parameters=count(model),
    )


def machine_section(bench: Bench) -> None:
    """Matrix products, large and of our shapes, and reading memory; on all threads and on one."""
    plan = bench.plan
    products = [machine.square_product(plan.square), *(machine.our_product(rows) for rows in plan.rows)]
    all_threads = torch.get_num_threads()
    for threads in sorted({1, all_threads}):
        torch.set_num_threads(threads)
        bench.time("machine", f"products, {threads} thread{'s' * (threads > 1)}", products, threads=threads)
    torch.set_num_threads(all_threads)
    bench.time("machine", "reading", reads(plan, LSTM))


def reads(plan: Plan, size: Size) -> list[Entry]:
    """A buffer of the size of a model's weights, and one that fits no cache."""
    weights = bytes_per_character(size)
    return [machine.read(machine.CACHE_READ, weights), machine.read(machine.MEMORY_READ, plan.memory_bytes)]


def one_shape(
    bench: Bench, section: str, name: str, size: Size, line_up: Sequence[str], shape: tuple[int, int], action: Action
) -> None:
    rows, steps = shape
    models = bench.models(size, line_up, shape)
    entries = [entry(name, model, size, rows, steps, action) for name, model in models.items()]
    entries.append(machine.square_product(bench.plan.square))
    bench.time(section, name, entries, rows=rows, steps=steps)


def train(bench: Bench) -> None:
    """The minibatch of the paper, everybody; and a small one, with our backends, the loop and torch's layer."""
    plan = bench.plan
    for size in plan.trained:
        one_shape(bench, "train", str(size), size, bench.line_up(size), plan.shape, contenders.train_step)
    backends = [name for name in bench.backends if name != "reference"]
    for shape in plan.small:
        line_up = [*backends, LOOP, *named_peers(LSTM)]
        one_shape(bench, "train", small_name(LSTM), LSTM, line_up, shape, contenders.train_step)


def forward(bench: Bench) -> None:
    for size in bench.plan.others:
        line_up = bench.line_up(size)
        one_shape(bench, "forward", str(size), size, line_up, bench.plan.shape, contenders.forward)


def generate(bench: Bench) -> None:
    plan = bench.plan
    for size in (*plan.others, *plan.generating):
        names = generation.with_variants(bench.line_up(size) if size in plan.others else [bench.ours, LOOP])
        characters = generation.affordable(size, plan.generated)
        bench.say(f"checking the text that {', '.join(names)} of {size} generate against the reference")
        checks = [generation.check_contender(name, size, min(100, characters)) for name in names]
        bench.checks += [found for found in checks if found is not None]
        entries = [generation.entry(name, size, characters) for name in names]
        bench.time("generate", str(size), [*entries, *reads(plan, size)], rows=1, steps=characters)
    bench.bits_per_character = generation.bits_per_character(LSTM)


def memory(bench: Bench) -> None:
    rows, steps = bench.plan.shape
    for size in bench.plan.others:
        both = [(bench.ours, products) for products in bench.precisions]
        for name, products in [*both, *((name, "float32") for name in bench.line_up(size) if name != bench.ours)]:
            bench.say(f"memory: {name} of {size}")
            found = {
                "model": str(size),
                "contender": name if products == "float32" else f"{name} {products}",
                "rows": rows,
                "steps": steps,
                "kept_bytes": memory_of.kept_bytes(build(name, size), *batch(rows, steps), products),
                "activations_once_bytes": must_keep(size, rows * steps),
                "peak_bytes": None,
            }
            if bench.plan.full_line_up and products == "float32":
                found["peak_bytes"] = memory_of.peak_bytes(name, size, rows, steps)
            bench.memory.append(found)


def minibatch(bench: Bench) -> None:
    """Small minibatches against large ones: they train better, so they must not cost more."""
    shapes = bench.plan.minibatches
    for size in bench.plan.others:
        model = bench.models(size, [bench.ours], *shapes)[bench.ours]
        entries = [
            entry(f"{rows} x {steps}", model, size, rows, steps, contenders.train_step) for rows, steps in shapes
        ]
        bench.time("minibatch", str(size), entries, contender=bench.ours)


def updates(bench: Bench) -> None:
    """Whole updates of the training loop against its bare step."""
    for products in bench.precisions:
        for shape in bench.plan.updated:
            with whole_updates.entries(LSTM, *shape, products) as entries:
                bench.time("updates", whole_updates.group_name(LSTM, *shape, products), entries)


def scaling(bench: Bench) -> None:
    """How the training step's time grows with the rows, the steps and the parameters."""
    plan = bench.plan
    names = [bench.ours, *([LOOP, *named_peers(LSTM)] if plan.full_line_up else [])]
    by_rows = [(rows, plan.scaling_steps) for rows in plan.batches]
    by_steps = [(plan.scaling_rows, steps) for steps in plan.steps]
    for group, axis, shapes, fit_from in (("rows", 0, by_rows, 8), ("steps", 1, by_steps, 0)):
        models = bench.models(LSTM, names, *shapes)
        entries = []
        for shape in shapes:
            for name, model in models.items():
                one = entry(f"{name}, {shape[axis]} {group}", model, LSTM, *shape, contenders.train_step)
                entries.append(replace(one, series=name, x=shape[axis]))
        bench.time("scaling", group, entries, model=str(LSTM), shapes=shapes, fit_from=fit_from)
    entries, shape = [], (plan.scaling_rows, plan.scaling_steps)
    for hidden_size in plan.hidden_sizes:
        size = Size("lstm", 3, hidden_size)
        for name, model in bench.models(size, names[:2], shape).items():
            one = entry(f"{name}, {size}", model, size, *shape, contenders.train_step)
            entries.append(replace(one, series=name, x=parameters(size)))
    bench.time("scaling", "parameters", entries, shapes=[shape])


def sizes(bench: Bench) -> None:
    """The paper's sizes, each against the loop, training and forward only."""
    for size, rows, steps in bench.plan.sizes:
        models = bench.models(size, [bench.ours, LOOP], (rows, steps))
        for what, action in (("", contenders.train_step), (", forward", contenders.forward)):
            entries = [entry(name, model, size, rows, steps, action) for name, model in models.items()]
            entries.append(machine.square_product(bench.plan.square))
            bench.time("sizes", f"{size}{what}", entries, rows=rows, steps=steps)


RUN: dict[str, Callable[[Bench], None]] = {
    "machine": machine_section,
    "train": train,
    "precision": precision.section,
    "forward": forward,
    "generate": generate,
    "memory": memory,
    "minibatch": minibatch,
    "updates": updates,
    "scaling": scaling,
    "sizes": sizes,
}
