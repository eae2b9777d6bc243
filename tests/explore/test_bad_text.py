"""Texts that are long, strange or unknown to the model."""

from __future__ import annotations

from typing import Any

import pytest
from browser import ScriptError
from using import put, settled

STRANGE = [
    "שלום עולם, مرحبا بالعالم",
    "👩‍👩‍👧‍👦 🇨🇭 e\u0301 \ufeff",
    "a\x00b\x01\x7f",
    "\ud800 alone",
    "\u202eoverridden\u202c",
    "no end",
    "\n\n\n",
]


def test_strange_texts_are_read(opened: Any) -> None:
    """In bytes: as many as UTF-8 has, a lone surrogate as the replacement character."""
    tab = opened()
    for text in STRANGE:
        tab.choose("#text", text, "input")
        expected = list(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode())
        tab.expect(f"gfrnn.numbers().models[0].bits.length === {len(expected)}")
        assert tab.run("gfrnn.numbers().bytes") == expected, ascii(text)
        tab.key("End")
        tab.click("#step-back")
        characters = len(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
        assert tab.run("document.querySelectorAll('#mirror span:not(.end)').length") == characters, ascii(text)


def test_what_the_model_does_not_know(opened: Any) -> None:
    tab = opened()
    put(tab, "a\x00b")
    tab.expect(
        "document.getElementById('told').textContent.startsWith('1 bytes that tiny does not know are read as “?”')"
    )
    assert tab.run("[...document.querySelectorAll('#mirror .unknown')].length") == 1
    assert tab.run("gfrnn.numbers().models[0].bits") == tab.run("gfrnn.score('a?b')")
    tab.choose("#unknown", "refuse")
    tab.expect("document.getElementById('told').textContent.includes('0x00 at offset 1')")
    assert tab.text(".bpc") == "–"
    put(tab, "ab")
    assert tab.text("#told") == ""


def test_scripts_are_told_what_is_wrong(opened: Any) -> None:
    tab = opened()
    for call, sentence in {
        "gfrnn.score('a\\u0000')": "has the byte 0x00 at offset 1, which is not among the model's 205 symbols",
        "gfrnn.generate('')": "the prompt is empty",
        "gfrnn.generate('a', {temperature: -1})": "temperature must be 0 or more",
        "gfrnn.generate('a', {top_k: 0})": "top_k must be a whole number of 1 or more",
        "gfrnn.generate('a', {top_p: 1.5})": "top_p must be above 0 and at most 1",
        "gfrnn.generate('a', {seed: -1})": "seed must be 0 or more",
        "gfrnn.generate('a', {seed: 'x'})": "seed must be a whole number",
        "gfrnn.generate('a', {max_new: 1.5})": "max_new must be 0 or more",
    }.items():
        with pytest.raises(ScriptError, match=sentence):
            tab.run(call)
    assert tab.run("gfrnn.score('')") == []
    assert tab.run("gfrnn.generate('a', {max_new: 0})") == ""
    assert tab.run("gfrnn.score('a\\u0000', {unknown: 'replace'})") == tab.run("gfrnn.score('a?')")


def test_a_paste_of_five_megabytes(opened: Any) -> None:
    """Cut to what the page shows, and said; scripts may have it all, in portions."""
    tab = opened()
    tab.run(
        "(() => { const area = document.getElementById('text'); area.focus(); area.value = 'word é\\n'.repeat(625000);"
        " area.dispatchEvent(new Event('input')); })()"
    )
    tab.expect("gfrnn.numbers().models[0].bits.length === 10000")
    assert "up to 10,000 bytes: 4,990,000 more were left out" in tab.text("#told")
    settled(tab, "word é\n" * 1250)
    long = "gfrnn.score('word\\n'.repeat(20000), {told: () => told++})"
    tab.run(f"globalThis.told = 0; {long}.then((bits) => {{ globalThis.bits = bits.length }}); 0")
    tab.expect("told > 1 || globalThis.bits")  # the page answers while it is read
    tab.expect("globalThis.bits === 100000")
