"""The generator: its rules, its purity, its splits, its alphabets."""

import collections
import hashlib
import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs_oracle import literal_program

from gfrnn.errors import UsageError
from gfrnn.models.program_symbols import SOURCE_CHARACTERS, SOURCE_SIZE, TARGET_CHARACTERS, TARGET_SIZE
from gfrnn.tasks.programs import CURRICULA, SPLITS, Settings, make, split_of, stream
from gfrnn.tasks.programs.language import evaluate

settings_of_any_kind = st.builds(
    Settings,
    max_length=st.integers(1, 30),
    max_nesting=st.integers(1, 10),
    curriculum=st.sampled_from(CURRICULA),
    span=st.integers(1, 1000),
)


def shape(source: str) -> str:
    """A program without its numbers and variable names."""
    return re.sub(r"\b[a-j]\b", "v", re.sub(r"\d+", "9", source))


def frequencies(sources: list[str]) -> dict[str, float]:
    counts = collections.Counter(shape(source) for source in sources)
    return {key: n / len(sources) for key, n in counts.items()}


@pytest.mark.parametrize("nesting", [1, 2])
def test_shapes_are_as_frequent_as_the_rules_say(nesting: int) -> None:
    n = 20_000
    rng = random.Random(nesting)
    rules = frequencies([literal_program(rng, lambda: (rng.randint(1, 3), nesting))[0] for _ in range(n)])
    ours = frequencies([p.source for p in stream(5, n, Settings(max_length=3, nesting=nesting, max_nesting=2))])
    common = {key for key in rules.keys() | ours.keys() if rules.get(key, 0) + ours.get(key, 0) > 0.002}
    assert len(common) >= {1: 10, 2: 90}[nesting]
    for key in common:
        p = (rules.get(key, 0) + ours.get(key, 0)) / 2
        assert abs(rules.get(key, 0) - ours.get(key, 0)) < 5 * (2 * p * (1 - p) / n) ** 0.5, key


def test_mean_and_tail_of_the_mixed_curriculum() -> None:
    made = list(stream(11, 20_000))
    lengths = sorted(len(p.source) for p in made)
    assert sum(lengths) / len(lengths) == pytest.approx(56, abs=0.7)
    assert lengths[19_000] == pytest.approx(111, abs=2)
    assert sum(len(p.target) for p in made) / len(made) == pytest.approx(7.7, abs=0.1)


def test_every_literal_draws_its_own_length() -> None:
    """With a constant length 6, a literal under 10 has one chance in 100,000; with the mix, one in seven or so."""
    literals = [n for p in stream(2, 2000, Settings(max_length=6, nesting=1)) for n in re.findall(r"\d+", p.source)]
    assert 0.15 < sum(len(n) == 1 for n in literals) / len(literals) < 0.35
    fixed = [p for p in stream(2, 2000, Settings(length=6, nesting=1)) if "if" in p.source]
    literals = [n for p in fixed for n in re.findall(r"\d+", p.source)]
    assert 0.85 < sum(len(n) == 6 for n in literals) / len(literals) < 0.95


@pytest.mark.parametrize("curriculum", ["mix", "combined"])
def test_a_literal_does_not_tell_which_length_it_drew(curriculum: str) -> None:
    """Of literals with equally many digits, all last digits are equally frequent: digits and length share no luck."""
    settings = Settings(max_length=6, nesting=1, curriculum=curriculum, span=12_000)
    made = [p.source for p in stream(4, 12_000, settings) if " if " in p.source]
    literals = [n for source in made for n in re.findall(r"\d+", source)]
    for digits in (3, 4, 5):
        last = collections.Counter(n[-1] for n in literals if len(n) == digits and int(n) != 10 ** (digits - 1))
        n = last.total()
        assert n > 500
        for digit in "0123456789":
            assert abs(last[digit] - n / 10) < 5 * (0.09 * n) ** 0.5, (digits, digit, last)


@given(settings_of_any_kind, st.integers(), st.integers(0, 10**12))
def test_any_program_is_in_range_and_true(settings: Settings, seed: int, index: int) -> None:
    program = make(seed, index, settings)
    assert program == make(seed, index, settings)
    assert 1 <= program.length <= settings.max_length
    assert 1 <= program.nesting <= settings.max_nesting
    assert set(program.source) <= set(SOURCE_CHARACTERS)
    assert set(program.target) <= set(TARGET_CHARACTERS)
    assert str(evaluate(program.source)) == program.target
    printed: list[int] = []
    exec(program.source, {"print": printed.append})
    assert [program.target] == [str(value) for value in printed]


def test_alphabets_have_the_papers_sizes_and_all_symbols_occur() -> None:
    assert (SOURCE_SIZE, TARGET_SIZE) == (41, 13)
    made = list(stream(1, 2000))
    assert {c for p in made for c in p.source} == set(SOURCE_CHARACTERS)
    assert {c for p in made for c in p.target} == set(TARGET_CHARACTERS)


def test_the_data_never_changes() -> None:
    """A recorded digest: results and cached test cells are only comparable as long as it stays."""
    digest = hashlib.sha256()
    for curriculum in CURRICULA:
        for program in stream(1, 100, Settings(curriculum=curriculum), split="test"):
            digest.update(repr(tuple(program)).encode())
    assert digest.hexdigest()[:16] == "372a5c92e47d2e43"


def test_streams_start_anywhere_and_differ_by_seed() -> None:
    whole = list(stream(3, 50))
    assert list(stream(3, 20, first=30)) == whole[30:]
    assert sum(a == b for a, b in zip(whole, stream(4, 50), strict=True)) <= 2


def test_splits_are_disjoint_and_belong_to_the_text() -> None:
    easy = Settings(max_length=1, max_nesting=1)  # few distinct programs: collisions would be certain without the rule
    texts = {split: {p.source for p in stream(seed, 3000, easy, split)} for seed, split in enumerate(SPLITS)}
    for one, other in itertools.combinations(SPLITS, 2):
        assert not texts[one] & texts[other]
    for split, sources in texts.items():
        assert {split_of(source) for source in sources} == {split}
        assert len(sources) > 1000
    unsplit = [split_of(p.source) for p in stream(9, 3000)]
    for split in SPLITS:
        assert unsplit.count(split) / 3000 == pytest.approx(1 / 3, abs=0.03)


def test_baseline_naive_and_combined() -> None:
    assert {p.nesting for p in stream(1, 100, Settings(curriculum="baseline"))} == {5}
    naive = Settings(max_length=3, max_nesting=2, curriculum="naive", span=600)
    levels = [(p.nesting, p.length) for p in stream(1, 700, naive)]
    assert levels == sorted(levels)
    assert [levels.count((n, length)) for n in (1, 2) for length in (1, 2, 3)] == [100] * 5 + [200]
    combined = Settings(max_length=10, max_nesting=5, curriculum="combined", span=10**9)
    deeper = sum(p.nesting > 1 for p in stream(1, 5000, combined)) / 5000
    assert deeper == pytest.approx(1 / 5 * 4 / 5, abs=0.02)


def test_a_test_cell_is_constant() -> None:
    made = list(stream(1, 200, Settings(length=4, nesting=3)))
    assert {(p.length, p.nesting) for p in made} == {(4, 3)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_length": 0},
        {"max_length": 31},
        {"max_nesting": 11},
        {"length": 0},
        {"length": 11},
        {"nesting": -1},
        {"nesting": 6},
        {"curriculum": "blend"},
        {"literals": "round"},
        {"span": 0},
    ],
)
def test_settings_out_of_range(wrong: dict) -> None:
    (name, value) = next(iter(wrong.items()))
    with pytest.raises(UsageError, match=f"{name.replace('_', '-')} '?{value}"):
        Settings(**wrong)


def test_ideal_literals_are_the_data_as_it_always_was() -> None:
    assert Settings().key() == Settings(literals="ideal").key() == "mix,10,5,0,0,0"
    assert list(stream(7, 50)) == list(stream(7, 50, Settings(literals="ideal")))


def operands(sources: list[str]) -> list[int]:
    """The literals of if-expressions, none of which is a small factor or a loop count."""
    return [int(n) for source in sources if " if " in source for n in re.findall(r"\d+", source)]


def test_original_literals_are_remainders_of_32_bits() -> None:
    """At length 10 they stop at 2 ** 32; at length 9 those under 294,967,297 come five times, the others four."""
    longest = operands([p.source for p in stream(1, 6000, Settings(length=10, nesting=1, literals="original"))])
    assert 0.99 * 2**32 < max(longest) <= 2**32
    assert sum(longest) / len(longest) == pytest.approx(2**31, rel=0.03)
    nine = operands([p.source for p in stream(1, 6000, Settings(length=9, nesting=1, literals="original"))])
    low = 294_967_296 * 5 / 2**32
    assert sum(n <= 294_967_296 for n in nine) / len(nine) == pytest.approx(low, abs=5 * (0.25 / len(nine)) ** 0.5)
    ideal = operands([p.source for p in stream(1, 6000, Settings(length=9, nesting=1))])
    assert abs(low - 0.2949) > 5 * (0.25 / len(nine)) ** 0.5  # so that the two can be told apart
    assert sum(n <= 294_967_296 for n in ideal) / len(ideal) == pytest.approx(0.2949, abs=0.03)
    short = operands([p.source for p in stream(1, 500, Settings(length=2, nesting=1, literals="original"))])
    assert (min(short), max(short)) == (1, 100)


@pytest.mark.parametrize("curriculum", CURRICULA)
def test_original_literals_make_true_programs_of_every_curriculum(curriculum: str) -> None:
    settings = Settings(max_length=30, curriculum=curriculum, span=200, literals="original")
    made = list(stream(3, 200, settings, "validation"))
    assert made != list(stream(3, 200, Settings(max_length=30, curriculum=curriculum, span=200), "validation"))
    for program in made:
        assert str(evaluate(program.source)) == program.target
