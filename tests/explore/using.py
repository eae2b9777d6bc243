"""What tests of the page do again and again."""

from __future__ import annotations

import json

import torch
from browser import Page

from gfrnn.models import CharLM


def tiny_model(wiring: str = "gated", seed: int = 0, **options: object) -> CharLM:
    """A model that reads quickly and has an opinion about every character."""
    torch.manual_seed(seed)
    made = CharLM("lstm", 12, 3, wiring, **options)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.6 if parameter.dim() == 1 else 1.4 * parameter.shape[1] ** -0.5)
    return made.as_half().eval()


def put(tab: Page, text: str, cursor: int | None = None) -> None:
    """A text into the field, as pasted, and the cursor (in UTF-16 units) somewhere in it."""
    tab.choose("#text", text, "input")
    place = len(text.encode("utf-16-le")) // 2 if cursor is None else cursor
    tab.run(f"document.getElementById('text').setSelectionRange({place}, {place})")
    tab.run("document.getElementById('text').dispatchEvent(new Event('input'))")
    settled(tab, text)


def settled(tab: Page, text: str) -> None:
    """Until the whole text has been read by every model, and what is shown is of it."""
    wanted = json.dumps(text)
    tab.expect(
        f"(() => {{ const n = gfrnn.numbers(), shown = document.querySelectorAll('.bpc'); return n.text === {wanted}"
        " && n.models.every((m, i) => m.current && m.bits.length === n.bytes.length"
        " && shown[i].textContent === (m.bits.length ? m.bpc.toFixed(3) : '–')) })()"
    )
