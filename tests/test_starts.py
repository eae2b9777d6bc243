"""How feedback may start: the orthogonal blocks by name, and the biases of the global reset gates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import HIDDEN, INPUT, LAYERS
from runs import tiny

from gfrnn.names import STARTS
from gfrnn.tasks.text.task import TextTask

FACTORS = {"paper": (1.0, 1.0), "scaled": (3**-0.5, 3**-0.5), "quiet": (1.0, 0.1), "stack": (1.0, 0.0)}


def layer(unit: str = "lstm", num_layers: int = 3, **options: Any) -> Any:
    torch.manual_seed(5)
    return LAYERS[unit](INPUT, HIDDEN, num_layers, dtype=torch.float64, **options)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("unit", ["tanh", "gru", "lstm"])
@pytest.mark.parametrize("wiring", ["feedback", "gated"])
def test_a_start_multiplies_the_blocks_of_the_paper(start: str, unit: str, wiring: str) -> None:
    own, other = FACTORS[start]
    paper, made = (dict(layer(unit, wiring=wiring, start=name).named_parameters()) for name in ("paper", start))
    for name, parameter in made.items():
        expected = paper[name].detach().clone()
        if name.startswith("weight_hh"):
            j = int(name[-1])
            for i, block in enumerate(expected.split(HIDDEN, dim=1)):
                block *= own if i == j else other
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-12, atol=0)


def test_gates_that_see_their_own_layer_hear_one_past_and_the_candidate_all() -> None:
    paper, scaled = (layer(gates_see="own", start=name) for name in ("paper", "scaled"))
    assert torch.equal(paper.weight_hh_l1, scaled.weight_hh_l1)
    torch.testing.assert_close(paper.weight_fb_l1 / 3**0.5, scaled.weight_fb_l1)
    quiet = layer(gates_see="own", start="quiet")
    assert torch.equal(paper.weight_hh_l1, quiet.weight_hh_l1)


@pytest.mark.parametrize("unit", ["gru", "lstm"])
def test_started_as_a_stack_it_computes_what_the_stack_does(unit: str) -> None:
    feedback, stack = layer(unit, wiring="feedback", start="stack"), layer(unit, wiring="stacked")
    own = {name: p.detach() for name, p in feedback.named_parameters()}
    for j in range(3):
        own[f"weight_hh_l{j}"] = own[f"weight_hh_l{j}"].split(HIDDEN, dim=1)[j]
    stack.load_state_dict(own)
    x = torch.randn(6, 2, INPUT, dtype=torch.float64)
    torch.testing.assert_close(feedback(x)[0], stack(x)[0])


def test_the_biases_of_the_gates_to_the_own_past_and_to_the_others() -> None:
    made = layer(gate_bias_own=2.0, gate_bias_other=-3.0)
    for _ in range(2):
        for j in range(3):
            assert getattr(made, f"bias_g_l{j}").tolist() == [2.0 if i == j else -3.0 for i in range(3)]
        made.bias_g_l0.data.fill_(7.0)
        made.reset_parameters()
    assert not layer().bias_g_l1.any()
    x = torch.zeros(1, 1, INPUT, dtype=torch.float64)
    *_, gates = layer(gate_bias_own=9.0, gate_bias_other=-9.0)(x, return_gates=True)
    torch.testing.assert_close(gates[0, 0], torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-3)


def test_options_of_the_start_are_shown() -> None:
    shown = repr(layer(start="quiet", gate_bias_own=2))
    assert "start='quiet', gate_bias_own=2.0" in shown and "gate_bias_other" not in shown
    assert "start" not in repr(layer())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"start": "orthogonal"}, "start must be one of 'paper', 'scaled', 'quiet', 'stack', got 'orthogonal'"),
        ({"start": "scaled", "wiring": "stacked"}, "start='scaled': with wiring 'stacked' no layer hears another's"),
        ({"start": "scaled", "wiring": "stacked", "num_layers": 1}, "with wiring 'stacked' no layer hears"),
        ({"gate_bias_own": 1.0, "wiring": "feedback"}, "gate_bias_own=1.0: wiring 'feedback' has no learnt gates"),
        ({"gate_bias_other": 1.0, "wiring": "stacked"}, "gate_bias_other=1.0: wiring 'stacked' has no learnt gates"),
        ({"gate_bias_other": 1.0, "bias": False}, "gate_bias_other=1.0: with bias=False the gates have none"),
        ({"gate_bias_own": float("nan")}, "gate_bias_own must be a finite number, got nan"),
        ({"gate_bias_own": "2"}, "gate_bias_own must be a finite number, got '2'"),
    ],
)
def test_starts_that_make_no_sense_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        layer(**options)


def test_a_run_starts_as_its_options_say(tmp_path: Path) -> None:
    config = tiny(tmp_path, start="stack", gate_bias_own=2.0, gate_bias_other=-2.0)
    task = config.build_task()
    assert isinstance(task, TextTask)
    found = task.build_model(1).layer
    assert (found.start, found.gate_bias_own, found.gate_bias_other) == ("stack", 2.0, -2.0)
    assert not found.weight_hh_l0[:, found.hidden_size :].any()
