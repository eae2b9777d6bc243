"""The page in a browser, as a reader uses it: typing, stepping, touching gates, writing, exporting, sending a view."""

from __future__ import annotations

import copy
import json
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from browser import Page
from using import put, settled

from gfrnn.models import CharLM

TEXT = "<page>\n  <title>Isotropy</title>\n"


def numbers(tab: Page) -> Any:
    return tab.run("gfrnn.numbers().models[0]")


def bpc(tab: Page) -> float:
    return float(tab.text(".bpc"))


def arrows(tab: Page) -> list[str]:
    return tab.all(".network path[stroke-width]", "one.getAttribute('stroke-width')")


def test_it_opens_with_an_example(opened: Any, model: CharLM) -> None:
    tab = opened("packaged")
    shown = tab.run("gfrnn.numbers()")
    assert shown["text"].startswith("  <page>\n    <title>Isotropy")
    assert float(tab.text(".bpc")) == pytest.approx(model.score(shown["text"].encode()).mean(), abs=6e-4)
    assert tab.run("document.querySelectorAll('#mirror span:not(.end)').length") == len(shown["text"])
    assert tab.text("#engine-told") == "Runs in a worker, by WebAssembly SIMD."


def test_typing_is_read_at_once(opened: Any, tiny: CharLM) -> None:
    tab = opened()
    put(tab, "")
    assert tab.text(".bpc") == "–"
    tab.click("#text")
    for word in ("The ", "gated ", "网络"):
        tab.type(word)
    settled(tab, "The gated 网络")
    np.testing.assert_allclose(numbers(tab)["bits"], tiny.double().score("The gated 网络".encode()), atol=1e-9)
    tiny.float()
    colours = tab.run("[...document.querySelectorAll('#mirror span')].map((span) => span.style.backgroundColor)")
    assert len(set(colours)) > 5


def test_changing_the_middle_of_a_text_reads_it_anew(opened: Any, tiny: CharLM) -> None:
    tab = opened()
    put(tab, TEXT)
    put(tab, TEXT.replace("Iso", "Aniso"), 20)
    np.testing.assert_allclose(
        numbers(tab)["bits"], tiny.double().score(TEXT.replace("Iso", "Aniso").encode()), atol=1e-9
    )
    tiny.float()


def test_arrow_keys_step_through_the_network(opened: Any) -> None:
    tab = opened()
    put(tab, TEXT, 5)
    before, next_before = arrows(tab), tab.text(".next")
    tab.key("ArrowRight")
    tab.expect("gfrnn.numbers().cursor === 6")
    tab.expect(f"document.querySelector('.next').textContent !== {json.dumps(next_before)}")
    assert arrows(tab) != before
    gates = np.array(numbers(tab)["gates"])[5]
    shown = tab.run("[...document.querySelectorAll('.switches .g')].map((output) => Number(output.textContent))")
    np.testing.assert_allclose(shown, gates[::-1].flatten(), atol=0.0051)
    assert "The network at “>”" in tab.run("document.querySelector('.network svg').getAttribute('aria-label')")


def test_buttons_and_strips_step_too(opened: Any) -> None:
    tab = opened()
    put(tab, TEXT, 0)
    tab.click("#step-on")
    tab.expect("gfrnn.numbers().cursor === 1")
    tab.click("#step-back")
    tab.expect("gfrnn.numbers().cursor === 0")
    tab.run("document.querySelector('.strips .canvas').focus()")
    tab.key("End")
    tab.expect(f"gfrnn.numbers().cursor === {len(TEXT)}")
    tab.key("ArrowLeft")
    spoken = tab.expect("document.querySelector('.strips .canvas').getAttribute('aria-valuetext')")
    assert re.match(r">  \d+\.\d\d bits   g 1→3 0\.\d\d", spoken)
    tab.click("#play")
    tab.expect(f"gfrnn.numbers().cursor === {len(TEXT)} && document.querySelector('#play').textContent === 'Play'")


def test_a_strip_tells_what_is_under_the_pointer(opened: Any) -> None:
    tab = opened()
    put(tab, TEXT, 3)
    tab.run("document.querySelector('.strips').scrollIntoView()")
    box = tab.run(
        "(() => { const b = document.querySelector('.strips svg').getBoundingClientRect(); return [b.x, b.y] })()"
    )
    at = {"x": box[0] + 44 + 12 * 10.5, "y": box[1] + 60}
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
    tab.expect(f"document.querySelector('.strips .told').textContent.startsWith({json.dumps(TEXT[10])})")
    for kind in ("mousePressed", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
    tab.expect("gfrnn.numbers().cursor === 11")


def test_a_switch_changes_the_cost(opened: Any) -> None:
    tab = opened()
    put(tab, TEXT)
    learnt = bpc(tab)
    choice = 'select[aria-label="gate from layer 3 to layer 1"]'
    tab.choose(choice, "0")
    tab.expect("gfrnn.numbers().models[0].gates.every((g) => g[0][2] === 0)")
    tab.expect("document.querySelector('.effect').textContent.includes('by the switches')")
    held = numbers(tab)
    assert held["bpc_learnt"] == pytest.approx(learnt, abs=6e-4)
    assert held["bpc"] != held["bpc_learnt"]
    api = tab.run(
        f"gfrnn.score({json.dumps(TEXT)}, {{gates: [[null, null, 0], [null, null, null], [null, null, null]]}})"
    )
    np.testing.assert_allclose(held["bits"], api, atol=1e-12)

    tab.choose(choice, "held")
    tab.choose('input[aria-label="gate from layer 3 to layer 1, held at"]', "0.25", "input")
    tab.expect("gfrnn.numbers().models[0].gates.every((g) => g[0][2] === 0.25)")

    tab.click(".all-one")
    tab.expect("gfrnn.numbers().models[0].gates.every((g) => g.flat().every((v) => v === 1))")
    tab.click(".as-stack")
    tab.expect(
        "gfrnn.numbers().models[0].gates.every((g) => g.every((row, j) => row.every((v, i) => i === j || v === 0)))"
    )
    tab.click(".all-learnt")
    tab.expect(f"Number(document.querySelector('.bpc').textContent) === {learnt}")


def test_closing_each_gate_in_turn(opened: Any) -> None:
    tab = opened()
    put(tab, TEXT)
    tab.click(".try-each")
    tab.expect("document.querySelector('.tried').textContent.includes('misses')")
    shown = tab.all(".switches .change", "parseFloat(one.textContent.replace('−', '-'))")
    assert len(shown) == 9
    gates: list[list[float | None]] = [[None] * 3 for _ in range(3)]
    gates[2][0] = 0
    bits = tab.run(f"gfrnn.score({json.dumps(TEXT)}, {{gates: {json.dumps(gates)}}})")
    assert shown[0] == pytest.approx(np.mean(bits) - numbers(tab)["bpc"], abs=6e-4)


def test_units_that_react_to_what_is_marked(opened: Any) -> None:
    tab = opened()
    put(tab, TEXT)
    tab.click(".find")
    tab.expect("document.querySelector('.found-told').textContent.startsWith('Mark some of the text first')")
    tab.run("document.getElementById('text').focus(); document.getElementById('text').setSelectionRange(9, 24)")
    tab.expect("gfrnn.numbers().cursor === 24")
    tab.click(".find")
    tab.expect("document.querySelectorAll('.found button').length === 6")
    first = tab.run("document.querySelector('.found button').dataset.unit")
    tab.expect(f"document.querySelector('.panel').innerHTML.includes('Hidden unit {first} over the text')")
    shown = numbers(tab)["unit"]
    values = np.array(shown["h"])
    away = (values[9:24].mean() - np.delete(values, np.arange(9, 24)).mean()) / values.std()
    assert abs(away) == pytest.approx(abs(float(tab.text(".found button").split()[1].replace("−", "-"))), abs=0.051)
    tab.click(".colour-text")
    assert tab.run("document.getElementById('colouring').value") == "unit-0"


@torch.no_grad()
def test_influence_is_the_difference_a_character_makes(opened: Any, tiny: CharLM) -> None:
    """One row of a batch for every character, with the input of that character set to zero."""
    tab = opened()
    put(tab, TEXT)
    tab.expect("document.querySelector('.influence-told').textContent.startsWith('Most')")
    model, length = copy.deepcopy(tiny).double(), len(TEXT)
    ids = torch.from_numpy(model.vocabulary.encode(TEXT.encode()).astype(np.int64))
    inputs = torch.nn.functional.one_hot(ids, len(model.vocabulary)).double()[:, None].repeat(1, length + 1, 1)
    inputs[range(length), range(length)] = 0
    log_p = torch.log_softmax(model.head(model.layer(inputs)[0][-1]), dim=1) / math.log(2)
    expected = (log_p[-1].exp2() * (log_p[-1] - log_p[:-1])).sum(1)
    np.testing.assert_allclose(numbers(tab)["influence"], expected.numpy(), rtol=1e-5, atol=1e-9)
    assert expected.max() > 1e-4


# A worker that answers late, as on a busy machine.
LATE = """const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (...message) { setTimeout(() => post.apply(this, message), 200) };"""


@pytest.mark.parametrize("before", ["", LATE], ids=["soon", "late"])
def test_next_bytes_are_probabilities(opened: Any, before: str) -> None:
    tab = opened(before=before)
    put(tab, TEXT, 4)
    tab.expect("document.querySelectorAll('.next li').length === 8")
    probabilities = {entry["byte"]: entry["p"] for entry in numbers(tab)["next"]}
    assert sum(probabilities.values()) == pytest.approx(1)
    assert -np.log2(probabilities[ord(TEXT[4])]) == pytest.approx(numbers(tab)["bits"][4])


def test_writing_stops_when_told_and_equals_python(opened: Any, tiny: CharLM) -> None:
    tab = opened()
    put(tab, TEXT)
    tab.run("document.querySelector('[name=max_new]').value = 200")
    tab.click("#writing .primary")
    tab.expect("document.querySelector('#writing .stop').disabled")
    tab.expect("!document.querySelector('#written button').disabled")
    expected = tiny.generate(TEXT, 200, temperature=0.8, seed=1).decode("utf-8", "replace")
    assert tab.text("#written pre") == TEXT + expected
    tab.run("document.querySelector('[name=max_new]').value = 100000")
    tab.click("#writing .primary")
    tab.expect("document.querySelector('#written pre').textContent.length > 300")
    tab.click("#writing .stop")
    tab.expect("document.getElementById('writing-told').textContent === 'Stopped.'")
    length = len(tab.text("#written pre"))
    assert length < 90_000
    tab.click("#written button")
    tab.expect("gfrnn.numbers().text.length > 300")


def test_what_cannot_be_written_is_said(opened: Any) -> None:
    tab = opened()
    put(tab, TEXT, 0)
    tab.click("#writing .primary")
    tab.expect(
        "document.getElementById('writing-told').textContent === 'there is no text before the cursor to go on from.'"
    )
