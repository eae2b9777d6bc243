"""The layers in the company of the rest of torch: copying, devices, dtypes, functional calls, compile, export."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from typing import Any

import cases
import pytest
import torch
from cases import HIDDEN, INPUT, TIME, Case, backends_take_turns, every_backend, main_cases, taking_turns
from tolerance import assert_all_close, assert_close

from gfrnn import ops
from gfrnn.bench.tolerance import allowed, error
from gfrnn.equations import State

# One of each wiring and unit, and which backend that is traced step by step, taking seconds, has it every day.
TRACED = {
    Case("lstm", "gated", input_skip=True, num_layers=2): "manual",
    Case("gru", "feedback", "own", num_layers=2): "reference",
    Case("tanh", "stacked", num_layers=2): "none of them",
}
LSTM, GRU, _ = TRACED
# A loop in Python is unrolled when it is traced, so its length is fixed; the fused op keeps time inside.
UNROLLED = ("reference", "manual")


def traced(name: str, *values: Any) -> pytest.MarkDecorator:
    """Parametrizes `case`, `name` (with a value for each case) and `backend`."""
    found = []
    for (case, its_turn), value in zip(TRACED.items(), values, strict=True):
        for backend in cases.backends():
            marks = [pytest.mark.slow] if backend in UNROLLED and backend != its_turn else []
            found.append(pytest.param(case, value, backend, marks=marks))
    return pytest.mark.parametrize(("case", name, "backend"), found, ids=str)


# One of each kind, and what those leave out, where the options of a network hardly matter.
KINDS = [*cases.MAIN, Case("lstm", "gated", bias=False), Case("gru", "feedback", num_layers=1)]


def equal(one: Any, other: Any) -> None:
    for a, b in zip(cases.tensors(one), cases.tensors(other), strict=True):
        assert torch.equal(a, b)


@every_backend
@main_cases
def test_copies_are_equal_and_apart(case: Case, backend: str) -> None:
    layer, x = case.layer(backend=backend, output="all"), cases.dense_input()
    before = layer(x, return_gates=True)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        equal(twin(x, return_gates=True), before)
        assert repr(twin) == repr(layer)
        with torch.no_grad():
            twin.weight_ih_l0.zero_()
        assert layer.weight_ih_l0.any()
    equal(layer(x, return_gates=True), before)


@main_cases
def test_torch_save_of_a_state_dict(case: Case) -> None:
    layer, other, buffer = case.layer(seed=1), case.layer(seed=2), io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    equal(layer(cases.dense_input()), other(cases.dense_input()))


@backends_take_turns
def test_float64_and_float32(case: Case, backend: str) -> None:
    """.to(dtype) moves everything, and float32 is as near to the oracle as the reference is in float32."""
    layer = case.layer(output="all")
    x, state = cases.dense_input(), cases.state_of(case)
    truth = cases.tensors(layer(x, cases.as_hx(state), return_gates=True))
    layer = layer.to(torch.float32)
    narrow = [part.float() for part in state]
    results = []
    for name in ("reference", backend):
        layer.backend = name
        results.append(cases.tensors(layer(x.float(), cases.as_hx(narrow), return_gates=True)))
    assert all(tensor.dtype == torch.float32 for tensor in results[1])
    assert_all_close(results[1], truth, results[0])
    layer = layer.double()
    assert layer(x)[0].dtype == torch.float64


def test_float64_from_the_start() -> None:
    layer = cases.LAYERS["gru"](INPUT, HIDDEN, 2, dtype=torch.float64)
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.float64}
    assert layer.initial_state(2).dtype == torch.float64
    assert cases.LAYERS["gru"](INPUT, HIDDEN).weight_ih_l0.dtype == torch.get_default_dtype()


@pytest.mark.parametrize("case", KINDS, ids=str)
def test_meta_device(case: Case) -> None:
    layer = cases.LAYERS[case.unit](INPUT, HIDDEN, device="meta", output="all", **case.options)
    assert all(parameter.is_meta for parameter in layer.parameters())
    for x in (torch.zeros(TIME, 2, INPUT, device="meta"), torch.zeros(TIME, 2, dtype=torch.long, device="meta")):
        output, *last, gates = cases.tensors(layer(x, return_gates=True))
        assert output.is_meta
        assert output.shape == (TIME, 2, case.num_layers * HIDDEN)
        assert all(part.shape == (case.num_layers, 2, HIDDEN) for part in last)
        assert gates.shape == (TIME, 2, case.num_layers, case.num_layers)
    real = layer.to_empty(device="cpu")
    real.reset_parameters()
    assert all(parameter.isfinite().all() for parameter in real.parameters())
    assert real(cases.dense_input(dtype=torch.float32))[0].isfinite().all()


def test_meta_device_as_a_context() -> None:
    with torch.device("meta"):
        layer = cases.LAYERS["lstm"](INPUT, HIDDEN, 3, wiring="gated")
    assert all(parameter.is_meta for parameter in layer.parameters())


@functools.cache
def rounded_truth(case: Case, dtype: torch.dtype) -> list[torch.Tensor]:
    """What the reference makes of factors rounded to bfloat16: the output, the last state, the gates."""
    layer, x = case.layer(dtype=torch.float32), cases.dense_input(dtype=dtype)
    state = State(*(part.float() for part in cases.state_of(case, dtype=dtype)))
    options = {"return_gates": True, "products": torch.bfloat16}
    with torch.no_grad():
        found = ops.scan(x.float(), state, layer.weights(), layer.spec, "reference", **options)
    return [found.h[..., -layer.hidden_size :], *(part for part in found.state if part is not None), found.gates]


@every_backend
@taking_turns("dtype", [torch.float32, torch.bfloat16], among=KINDS, whole=())
def test_bf16_autocast(case: Case, dtype: torch.dtype, backend: str) -> None:
    """Autocast feeds the layer either dtype; products are in bfloat16, and what comes out in the weights' float32."""
    layer = case.layer(backend=backend, dtype=torch.float32)
    x, state = cases.dense_input(dtype=dtype), cases.state_of(case, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = cases.tensors(layer(x, cases.as_hx(state), return_gates=True))
        embedded = layer(cases.integer_input())[0]
    for found, expected in zip(results, rounded_truth(case, dtype), strict=True):
        assert found.dtype == torch.float32
        assert error(found, expected) <= allowed(torch.float32, products=torch.bfloat16)
    plain = layer(cases.integer_input())[0]
    assert not torch.equal(embedded, plain) and error(embedded, plain) < 0.05
    results[0].sum().backward()
    assert layer.weight_ih_l0.grad.dtype == torch.float32
    assert layer.weight_ih_l0.grad.isfinite().all()


@pytest.mark.parametrize(("dtype", "weights"), [(torch.float16, torch.float32), (torch.bfloat16, torch.float64)])
def test_other_autocast_leaves_the_recurrence_alone(dtype: torch.dtype, weights: torch.dtype) -> None:
    """float16 is no precision for a recurrence, and a model in float64 was made so for a reason."""
    layer, x = Case("lstm", "gated").layer(dtype=weights), cases.dense_input(dtype=weights)
    with torch.autocast("cpu", dtype=dtype):
        found = layer(x)[0]
    assert torch.equal(found, layer(x)[0])


def test_autocast_switched_off_inside_is_off() -> None:
    layer, x = Case("gru", "gated").layer(dtype=torch.float32), cases.dense_input(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
        found = layer(x)[0]
    assert torch.equal(found, layer(x)[0])


def test_bf16_autocast_inside_a_model() -> None:
    """Between a Linear that gives bfloat16 and one that takes anything, trained for one step."""
    model = torch.nn.ModuleList(
        [torch.nn.Linear(3, INPUT), cases.LAYERS["lstm"](INPUT, HIDDEN, 2), torch.nn.Linear(HIDDEN, 2)]
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        below = model[0](torch.randn(TIME, 2, 3))
        assert below.dtype == torch.bfloat16
        loss = model[2](model[1](below)[0]).sum()
    loss.backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in model[0].parameters())


@every_backend
@main_cases
def test_functional_call(case: Case, backend: str) -> None:
    layer, other, x = case.layer(backend=backend, seed=1), case.layer(seed=2), cases.dense_input()
    before = layer(x)
    called = torch.func.functional_call(layer, dict(other.named_parameters()), (x,), {"return_gates": True})
    assert_all_close(cases.tensors(called), cases.tensors(other(x, return_gates=True)))
    equal(layer(x), before)


@main_cases
def test_function_transforms(case: Case) -> None:
    """torch.func.grad and vmap over an ensemble of weights, on the backend that is plain torch."""
    layers = [case.layer(backend="reference", seed=seed) for seed in (1, 2)]
    stacked = {
        name: torch.stack([layer.get_parameter(name).detach() for layer in layers]) for name in layers[0].state_dict()
    }
    x = cases.dense_input()

    def loss(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(layers[0], weights, (x,))[0].sin().sum()

    slopes = torch.vmap(torch.func.grad(loss))(stacked)
    for k, layer in enumerate(layers):
        layer(x)[0].sin().sum().backward()
        for name, parameter in layer.named_parameters():
            if parameter.grad is not None:
                assert_close(slopes[name][k], parameter.grad, what=name)


# torch's own tracer makes an instance of autograd.Function, which torch's own class complains about.
tracer_quirk = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


def compiled_equals_eager(layer: Any, x: torch.Tensor, state: Any, compiler: str, **options: Any) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=compiler)
    results = []
    for call in (layer, compiled):
        layer.zero_grad()
        found = cases.tensors(call(x, state, **options))
        sum(tensor.sin().sum() for tensor in found).backward()
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in layer.parameters()]
        results.append(found + grads)
    assert_all_close(results[1], results[0])


@tracer_quirk
@traced("ragged", False, True, False)
def test_compile_fullgraph(case: Case, ragged: bool, backend: str) -> None:
    layer, state = case.layer(backend=backend), cases.as_hx(cases.state_of(case))
    x, lengths = (cases.integer_input(2), torch.tensor([1, 2])) if ragged else (cases.dense_input(2), None)
    compiled_equals_eager(layer, x, state, "aot_eager", lengths=lengths, return_gates=not ragged)


def compile_to_machine_code(backend: str) -> None:
    from torch._inductor import config

    layer = Case("tanh", "gated", num_layers=2).layer(backend=backend)
    with config.patch(compile_threads=1):  # no pool of processes, each of which imports torch
        compiled_equals_eager(layer, cases.dense_input(2), None, "inductor")


@tracer_quirk
def test_compile_fullgraph_to_machine_code() -> None:
    compile_to_machine_code("auto")


@pytest.mark.slow
@tracer_quirk
@every_backend
def test_compile_fullgraph_to_machine_code_on(backend: str) -> None:
    """Slow for what is traced step by step: each step becomes C++ to compile."""
    compile_to_machine_code(backend)


@tracer_quirk
@every_backend
def test_compile_with_dropout(backend: str) -> None:
    layer, x = GRU.layer(backend=backend, dropout=0.5), cases.dense_input(1)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.manual_seed(1)
    first = compiled(x)[0]
    assert first.isfinite().all()
    assert not torch.equal(first, compiled(x)[0])


@traced("kind", "integer", "dense", "integer")
def test_export_with_dynamic_batch(case: Case, kind: str, backend: str) -> None:
    make = cases.integer_input if kind == "integer" else cases.dense_input
    layer = case.layer(backend=backend).eval()
    state = cases.as_hx(cases.state_of(case, batch=3))
    batch = torch.export.Dim("batch", min=1, max=64)
    hx_shape: Any = {1: batch} if not layer.has_cell else ({1: batch}, {1: batch})
    shapes = {"input": {1: batch}, "hx": hx_shape}
    program = torch.export.export(layer, (make(2, 3), state), dynamic_shapes=shapes).module()
    for size in (1, 5):
        wide, start = make(2, size), cases.as_hx(cases.state_of(case, batch=size))
        assert_all_close(cases.tensors(program(wide, start)), cases.tensors(layer(wide, start)))


@every_backend
def test_export_with_dynamic_time(backend: str) -> None:
    layer, x = LSTM.layer(backend=backend).eval(), cases.dense_input(4 if backend not in UNROLLED else 2, 2)
    time = torch.export.Dim("time", min=2, max=64)

    def export() -> Any:
        return torch.export.export(layer, (x,), dynamic_shapes={"input": {0: time}})

    if backend in UNROLLED:
        with pytest.raises(Exception, match=r"time.*specialized|[Cc]onstraints violated"):
            export()
        return
    longer = cases.dense_input(9, 2)
    assert_all_close(cases.tensors(export().module()(longer)), cases.tensors(layer(longer)))
