"""Products in float32 and in bfloat16, side by side: ours, and torch's own layer of equal parameters under autocast."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gfrnn.bench import contenders, machine, probe
from gfrnn.bench.accounting import flops
from gfrnn.bench.clock import Entry
from gfrnn.bench.contenders import batch, build, count, equal_parameters, named_peers, our_model
from gfrnn.bench.equality import check
from gfrnn.bench.plan import Size
from gfrnn.models.char_lm import CharLM

if TYPE_CHECKING:
    from gfrnn.bench.sections import Bench

PRECISIONS = ("float32", "bfloat16")


def under_autocast(model: nn.Module, ids: Tensor, targets: Tensor) -> None:
    """A training step as torch teaches it: the cost under autocast, the backward outside."""
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = contenders.cost(model, ids, targets)
    loss.backward()


ACTIONS: dict[str, Callable[[nn.Module, Tensor, Tensor], None]] = {
    "float32": contenders.train_step,
    "bfloat16": under_autocast,
}


def peers(size: Size) -> list[str]:
    return named_peers(size) or [equal_parameters(size)]


def peer_run(name: str, rows: int, steps: int) -> str:
    """
    >>> peer_run("nn.LSTM 3x228", 16, 50)
    'nn.LSTM 3x228 bfloat16, 16 x 50'
    """
    return f"{name} bfloat16, {rows} x {steps}"


def settle(bench: "Bench") -> None:
    """Find out what torch can run in bfloat16, and help it if that is possible: before torch has run anything else."""
    if bench.torch_cannot is not None:
        return
    works: dict[str, Callable[[], object]] = {}
    if "bfloat16" in bench.precisions:
        bench.say("asking other processes what torch can run in bfloat16")
        for size in bench.plan.trained:
            for name in peers(size):
                model = build(name, size)
                for shape in bench.plan.precise:
                    works[peer_run(name, *shape)] = partial(under_autocast, model, *batch(*shape))
        product = machine.square_product_in_bfloat16(bench.plan.square)
        works[product.name] = product.run
    bench.torch_cannot, bench.torch_setting = probe.settle(works) if works else ({}, "")
    bench.notes += [bench.torch_setting] * bool(bench.torch_setting)
    bench.notes += [f"{name} is not measured: {why}" for name, why in bench.torch_cannot.items() if why]


def entries(size: Size, runs: Sequence[tuple[str, str]], rows: int, steps: int) -> list[Entry]:
    """Contenders and precisions, each pair an entry; those of one contender share a model."""
    ids, targets = batch(rows, steps)
    models = {name: build(name, size) for name, _ in runs}
    found = []
    for name, precision in runs:
        model = models[name]
        operations = flops(size, rows * steps, training=True) if isinstance(model, CharLM) else 0.0
        run = lambda action=ACTIONS[precision], model=model: action(model, ids, targets)  # noqa: E731
        found.append(Entry(f"{name} {precision}", run, rows * steps, operations, parameters=count(model)))
    return found


def group_name(size: Size, rows: int, steps: int, threads: int) -> str:
    """
    >>> group_name(Size("lstm", 3, 140), 16, 50, 1)
    'GF-LSTM 3x140, 16 x 50, 1 thread'
    """
    return f"{size}, {rows} x {steps}, {threads} thread{'s' * (threads > 1)}"


def section(bench: "Bench") -> None:
    """Training steps in both precisions, on one thread and on all; beside them the machine's rates of products."""
    settle(bench)
    all_threads = sorted({1, torch.get_num_threads()})
    for size in bench.plan.trained:
        for rows, steps in bench.plan.precise:
            one_shape(bench, size, [bench.ours, *peers(size)], rows, steps, all_threads)
    for size, rows, steps in bench.plan.beyond_caches:
        one_shape(bench, size, [bench.ours], rows, steps, [1])


def one_shape(
    bench: "Bench", size: Size, names: Sequence[str], rows: int, steps: int, all_threads: Sequence[int]
) -> None:
    """Contenders of one size in the precisions asked for: ours against the reference first, then all in turn."""
    asked, before, model = bench.precisions, torch.get_num_threads(), our_model(size)
    few = max(2, min(steps, int(bench.plan.check_flops / flops(size, rows, training=True))))
    products = {"float32": None, "bfloat16": torch.bfloat16}
    for precision in asked:
        name = f"{bench.ours} {precision}"
        bench.say(f"checking {name} of {size} against the reference, {rows} rows x {few} steps")
        ours = our_model(size, bench.ours)
        bench.checks += check(str(size), model, {name: ours}, *batch(rows, few), products[precision])
    runs = [(name, precision) for name in names for precision in asked]
    cannot = bench.torch_cannot or {}
    runs = [
        (name, products)
        for name, products in runs
        if products == "float32" or not cannot.get(peer_run(name, rows, steps))
    ]
    rounded = [machine.square_product_in_bfloat16(bench.plan.square)] * ("bfloat16" in asked)
    for threads in all_threads:
        torch.set_num_threads(threads)
        competing = entries(size, runs, rows, steps)
        competing += [machine.square_product(bench.plan.square)]
        competing += [product for product in rounded if not cannot.get(product.name)]
        bench.time("precision", group_name(size, rows, steps, threads), competing, threads=threads)
    torch.set_num_threads(before)
