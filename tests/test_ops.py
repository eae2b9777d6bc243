"""The door to the backends: names, choices, reasons; never a silent switch."""

from __future__ import annotations

from collections.abc import Iterator

import cases
import pytest
import torch
from cases import HIDDEN, INPUT, Case, every_backend
from tolerance import assert_all_close

from gfrnn import ops
from gfrnn.equations import Spec, State
from gfrnn.ops.call import Call, Scanned

CASE = Case("lstm", "gated")


class Grumpy:
    """A backend that never can."""

    @staticmethod
    def why_unavailable() -> list[str]:
        return []

    @staticmethod
    def why_not(call: Call) -> list[str]:
        return ["the moon is full", f"it has {call.x.shape[0]} steps"]

    @staticmethod
    def scan(call: Call) -> Scanned:
        raise AssertionError("asked to run in spite of why_not")


def make_call() -> Call:
    layer = CASE.layer()
    return Call(cases.dense_input(), State(*cases.state_of(CASE)), layer.weights(), layer.spec)


@pytest.fixture
def grumpy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package with one more backend, asked first by "auto"."""
    monkeypatch.setitem(ops.BACKENDS, "grumpy", Grumpy)  # type: ignore[arg-type]
    monkeypatch.setattr(ops, "CHOICES", (*ops.CHOICES, "grumpy"))
    monkeypatch.setattr(ops, "AUTO", ("grumpy", *ops.AUTO))
    return


def test_an_explicit_backend_that_cannot_run_raises_its_sentences(grumpy: None) -> None:
    layer = CASE.layer(backend="grumpy")
    with pytest.raises(RuntimeError, match=r"'grumpy'.*the moon is full; it has 6 steps"):
        layer(cases.dense_input())


def test_auto_takes_the_first_that_can(grumpy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    call = make_call()
    assert ops.choose(call, "auto") != "grumpy"
    monkeypatch.setattr(Grumpy, "why_not", lambda call: [])
    assert ops.choose(call, "auto") == "grumpy"


def test_an_unknown_backend_names_the_choices() -> None:
    layer = CASE.layer()
    for give in (lambda: CASE.layer(backend="warp"), lambda: setattr(layer, "backend", "warp"), unknown_scan):
        with pytest.raises(ValueError, match=r"backend .*'auto'.*'reference'.*'warp'"):
            give()
    assert layer.backend == "auto"


def unknown_scan() -> None:
    call = make_call()
    ops.scan(call.x, call.state, call.weights, call.spec, "warp")


def test_reference_is_always_there() -> None:
    assert "reference" in cases.backends()
    assert ops.BACKENDS["reference"].why_not(make_call()) == []


@every_backend
def test_a_backend_that_runs_here_has_no_reason_against_a_plain_call(backend: str) -> None:
    assert ops.BACKENDS[backend].why_not(make_call()) == []
    assert ops.choose(make_call(), backend) == backend


@every_backend
def test_scan_is_what_the_layer_calls(backend: str) -> None:
    layer, x, state = CASE.layer(backend=backend, output="all"), cases.dense_input(), cases.state_of(CASE)
    spec = Spec("lstm", "gated", INPUT, HIDDEN, CASE.num_layers)
    assert layer.spec == spec
    scanned = ops.scan(x, State(*state), cases.scan_weights(layer.state_dict()), spec, backend, return_gates=True)
    found = [scanned.h, *scanned.state, scanned.gates]
    assert_all_close(found, cases.tensors(layer(x, cases.as_hx(state), return_gates=True)))


@every_backend
def test_gates_only_when_asked_for(backend: str) -> None:
    call = make_call()
    assert ops.scan(call.x, call.state, call.weights, call.spec, backend).gates is None


def test_the_backend_may_be_set_later() -> None:
    layer, x = CASE.layer(), cases.dense_input()
    assert layer.backend == "auto"
    results = []
    for backend in ("auto", *cases.backends()):
        layer.backend = backend
        assert layer.backend == backend
        results.append(cases.tensors(layer(x)))
    for found in results[1:]:
        assert_all_close(found, results[0])


@pytest.mark.parametrize("backend", list(ops.BACKENDS))
def test_every_backend_answers_in_sentences(backend: str) -> None:
    reasons = [*ops.BACKENDS[backend].why_unavailable(), *ops.BACKENDS[backend].why_not(make_call())]
    assert all(isinstance(reason, str) and len(reason.split()) > 2 for reason in reasons)
    unavailable = bool(ops.BACKENDS[backend].why_unavailable())
    assert unavailable == (backend not in cases.backends())
    if unavailable:
        with pytest.raises(RuntimeError, match=backend):
            CASE.layer(backend=backend)(cases.dense_input())


@every_backend
def test_inference_mode_and_no_grad(backend: str) -> None:
    layer, x = CASE.layer(backend=backend), cases.dense_input()
    truth = cases.tensors(layer(x))
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            found = cases.tensors(layer(x))
        assert not any(tensor.requires_grad for tensor in found)
        assert_all_close(found, truth)
