"""For everyone: axe-core's rules, the keyboard alone, and what a screen reader hears."""

from __future__ import annotations

from typing import Any

import pytest
from using import put

OPEN_ALL = "document.querySelectorAll('details').forEach((details) => { details.open = true })"
LOOKS = {"light": ("tiny", {}), "dark": ("two", {"dark": True}), "phone": ("two", {"width": 360, "height": 740})}


@pytest.mark.parametrize("look", [pytest.param("light", marks=pytest.mark.slow), "dark", "phone"])
def test_axe_finds_nothing(look: str, opened: Any, axe: str) -> None:
    name, options = LOOKS[look]
    tab = opened(name, **options)
    put(tab, "<page>\n")  # every character is a few elements more, and all are alike
    tab.choose("#writing [name=max_new]", "20")
    tab.run(OPEN_ALL)
    tab.click("#writing .primary")
    tab.expect("document.querySelector('#writing .stop').disabled")
    tab.expect("document.querySelector('#written pre').textContent")
    tab.run(axe + "\n; 0")
    found = tab.run("axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations)")
    assert [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found] == []


def test_everything_is_reached_by_the_keyboard(opened: Any) -> None:
    tab = opened()
    reachable = (
        "[...document.querySelectorAll('button, select, input, textarea, summary, [tabindex=\"0\"]')]"
        ".filter((one) => !one.disabled && one.checkVisibility())"
    )
    wanted = tab.run(f"{reachable}.length")
    tab.run("globalThis.seen = new Set(); document.addEventListener('focusin', (event) => seen.add(event.target))")
    for _ in range(wanted + 5):
        tab.key("Tab")
    assert tab.run(f"{reachable}.filter((one) => !seen.has(one)).map((one) => one.outerHTML.slice(0, 100))") == []


def test_buttons_answer_the_keyboard(opened: Any) -> None:
    tab = opened()
    tab.run("document.querySelector('.all-one').focus()")
    tab.key("Enter")
    tab.expect("gfrnn.numbers().models[0].held.every((gate) => gate === 1)")
    tab.run("document.querySelector('.all-learnt').focus()")
    tab.key(" ")
    tab.expect("gfrnn.numbers().models[0].held.every((gate) => gate === null)")


def test_values_are_there_as_text(opened: Any) -> None:
    tab = opened()
    tab.run(OPEN_ALL)
    tab.expect("[...document.querySelectorAll('figure table')].every((table) => table.rows.length > 3)")
    assert "bits per character" in tab.text("#spoken")
    assert tab.run("[...document.querySelectorAll('svg')].every((svg) => svg.getAttribute('aria-label').length > 20)")
