"""Bad input: the exception types of torch.nn.LSTM, a message that names the argument, nothing silently broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cases
import pytest
import torch
from cases import LAYERS, TORCH, every_unit_of_torch
from torch.nn.utils.rnn import pack_padded_sequence

T, B, L, H, I = 6, 3, 2, 4, 5
every_unit = every_unit_of_torch


def zeros(*shape: int, **options: Any) -> torch.Tensor:
    return torch.zeros(shape, **options)


def hx(unit: str, *shape: int, **options: Any) -> Any:
    return (zeros(*shape, **options), zeros(*shape, **options)) if unit == "lstm" else zeros(*shape, **options)


def raised(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("accepted")


def expect_refused_like_torch(unit: str, words: str, *arguments: Any, **options: Any) -> None:
    """Ours raises what torch's raises for the same call, and says which argument."""
    ours = raised(lambda: LAYERS[unit](I, H, L, **options)(*arguments))
    theirs = raised(lambda: TORCH[unit](I, H, L, **options)(*arguments))
    assert type(ours) is type(theirs), f"{ours!r}, torch: {theirs!r}"
    for word in words.split():
        assert word in str(ours), str(ours)


@every_unit
@pytest.mark.parametrize("shape", [(), (I,), (T, B, I, 1), (1, T, B, I, 1)])
def test_rank(unit: str, shape: tuple[int, ...]) -> None:
    expect_refused_like_torch(unit, f"input 2D 3D {len(shape)}D", zeros(*shape))


@every_unit
@pytest.mark.parametrize("shape", [(T, B, I + 1), (T, B, 1), (T, B, 0), (T, 1)])
def test_width(unit: str, shape: tuple[int, ...]) -> None:
    expect_refused_like_torch(unit, f"input {I} {shape[-1]}", zeros(*shape))


@every_unit
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.complex64])
def test_dtype(unit: str, dtype: torch.dtype) -> None:
    expect_refused_like_torch(unit, f"input {dtype} torch.float32", zeros(T, B, I, dtype=dtype))


@every_unit
def test_integers_with_a_last_axis(unit: str) -> None:
    """Integer vectors are not indices: torch refuses them for their dtype, and so do we."""
    expect_refused_like_torch(unit, "input 3D", zeros(T, B, I, dtype=torch.long))


@every_unit
def test_device(unit: str) -> None:
    expect_refused_like_torch(unit, "input device meta cpu", zeros(T, B, I, device="meta"))
    error = raised(lambda: LAYERS[unit](I, H)(zeros(T, B, dtype=torch.long, device="meta")))
    assert type(error) is RuntimeError
    assert "input" in str(error)
    expect_refused_like_torch(unit, "hx device meta cpu", zeros(T, B, I), hx(unit, L, B, H, device="meta"))


WRONG_STATES = [(L + 1, B, H), (L, B + 1, H), (L, B, H + 1), (L, 1, H), (1, B, H), (L, B, 1), (B, L, H), (L, H), (H,)]


@every_unit
@pytest.mark.parametrize("shape", WRONG_STATES)
def test_state_shape(unit: str, shape: tuple[int, ...]) -> None:
    words = f"hx hidden ({L}, {B}, {H}) {list(shape)}" if len(shape) == 3 else f"hx 3-D {len(shape)}-D"
    expect_refused_like_torch(unit, words, zeros(T, B, I), hx(unit, *shape))


@every_unit
@pytest.mark.parametrize("shape", [(L, 1, H), (L, H + 1), (L + 1, H), (1, H), (H,)])
def test_unbatched_state_shape(unit: str, shape: tuple[int, ...]) -> None:
    expect_refused_like_torch(
        unit, f"hx {shape[-1]}" if len(shape) == 2 else "hx unbatched", zeros(T, I), hx(unit, *shape)
    )


@pytest.mark.parametrize("shape", [(L, 1, H), (L, B, 1), (L, H)])
def test_cell_shape(shape: tuple[int, ...]) -> None:
    expect_refused_like_torch("lstm", "hx [1]", zeros(T, B, I), (zeros(L, B, H), zeros(*shape)))


@every_unit
def test_state_dtype(unit: str) -> None:
    expect_refused_like_torch(
        unit, "hx torch.float64 torch.float32", zeros(T, B, I), hx(unit, L, B, H, dtype=torch.float64)
    )


@every_unit
@pytest.mark.parametrize("kind", ["tensor", "pair", "triple", "nothing inside", "text"])
def test_state_kind(unit: str, kind: str) -> None:
    good = zeros(L, B, H)
    given = {"tensor": good, "pair": (good, good), "triple": (good,) * 3, "nothing inside": (None, None), "text": "h"}
    if kind == ("pair" if unit == "lstm" else "tensor"):
        LAYERS[unit](I, H, L)(zeros(T, B, I), given[kind])
        return
    with pytest.raises((TypeError, RuntimeError), match="hx"):
        LAYERS[unit](I, H, L)(zeros(T, B, I), given[kind])


@every_unit
@pytest.mark.parametrize("batch_first", [False, True])
def test_no_time_raises_and_no_batch_works(unit: str, batch_first: bool) -> None:
    def shape(time: int, batch: int) -> tuple[int, int, int]:
        return (batch, time, I) if batch_first else (time, batch, I)

    for x in (zeros(*shape(0, B)), zeros(0, I)):
        words = []
        for kind in (LAYERS[unit], TORCH[unit]):
            with pytest.raises(RuntimeError) as caught:
                kind(I, H, batch_first=batch_first)(x)
            words.append(str(caught.value))
        assert words[0] == words[1]
    with pytest.raises(RuntimeError, match="sequence length"):
        LAYERS[unit](I, H, batch_first=batch_first)(zeros(*shape(0, B)[:2], dtype=torch.long))
    for layer in (LAYERS[unit](I, H, L, batch_first=batch_first), TORCH[unit](I, H, L, batch_first=batch_first)):
        output, *last = cases.tensors(layer(zeros(*shape(T, 0))))
        assert output.shape == (*shape(T, 0)[:2], H)
        assert all(part.shape == (L, 0, H) for part in last)


@every_unit
@pytest.mark.parametrize("index", [I, I + 100, -1, -I])
def test_index_out_of_range(unit: str, index: int) -> None:
    """As torch.nn.Embedding: IndexError; and the message has the index and the size."""
    x = zeros(T, B, dtype=torch.long)
    x[2, 1] = index
    layer = LAYERS[unit](I, H, L)
    packed = pack_padded_sequence(x, torch.tensor([T, T, 1]))
    for call in (lambda: layer(x), lambda: layer(x[:, 1]), lambda: layer.step(x[2]), lambda: layer(packed)):
        with pytest.raises(IndexError, match=rf"input.* {index} .*{I}"):
            call()
    with pytest.raises(IndexError, match=rf"input.* {index} .*{I}"):
        layer(x, lengths=torch.tensor([T, 3, T]))


@every_unit
@pytest.mark.parametrize("shape", [(), (T, B, 1), (T, B, I, 1)])
def test_rank_of_indices(unit: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"input.*{len(shape)}D"):
        LAYERS[unit](I, H)(zeros(*shape, dtype=torch.long))


WRONG_LENGTHS = [
    (torch.tensor([0, 1, 2]), "0"),
    (torch.tensor([3, -1, 2]), "-1"),
    (torch.tensor([3, T + 1, 2]), str(T + 1)),
    (torch.tensor([3, 2]), "2"),
    (torch.tensor([3, 2, 1, 1]), "4"),
    (torch.tensor([3]), "1"),
    (torch.tensor(3), ""),
    (torch.tensor([[3, 2, 1]]), ""),
    (torch.tensor([3.0, 2.0, 1.0]), "float32"),
    (torch.tensor([True, True, True]), "bool"),
]


@every_unit
@pytest.mark.parametrize(("lengths", "word"), WRONG_LENGTHS, ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
def test_lengths(unit: str, lengths: torch.Tensor, word: str, batch_first: bool) -> None:
    x = zeros(B, T, I) if batch_first else zeros(T, B, I)
    with pytest.raises((ValueError, RuntimeError), match=f"lengths.*{word}"):
        LAYERS[unit](I, H, L, batch_first=batch_first)(x, lengths=lengths)


@every_unit
def test_lengths_where_they_mean_nothing(unit: str) -> None:
    layer = LAYERS[unit](I, H)
    with pytest.raises(ValueError, match="lengths"):
        layer(zeros(T, I), lengths=torch.tensor([2]))
    with pytest.raises(ValueError, match="lengths"):
        layer(pack_padded_sequence(zeros(T, B, I), [3, 2, 1]), lengths=torch.tensor([3, 2, 1]))


@every_unit
def test_packed(unit: str) -> None:
    def packed(*shape: int, **options: Any) -> Any:
        return pack_padded_sequence(zeros(*shape, **options), [T, 4, 1])

    layer = LAYERS[unit](I, H, L)
    with pytest.raises(RuntimeError, match=f"input.*{I}.*{I + 1}"):
        layer(packed(T, B, I + 1))
    with pytest.raises((RuntimeError, ValueError), match=r"input.*float64"):
        layer(packed(T, B, I, dtype=torch.float64))
    with pytest.raises(RuntimeError, match=rf"hidden.*\({L}, {B}, {H}\)"):
        layer(packed(T, B, I), hx(unit, L, B + 1, H))


@every_unit
@pytest.mark.parametrize("given", [None, 3, [[0.0] * I], "text"])
def test_input_that_is_no_tensor(unit: str, given: Any) -> None:
    with pytest.raises((TypeError, AttributeError), match=f"input.*{type(given).__name__}"):
        LAYERS[unit](I, H)(given)


@every_unit
@pytest.mark.parametrize(
    ("x_t", "kind"),
    [
        (zeros(T, B, I), ValueError),
        (zeros(B, I + 1), RuntimeError),
        (zeros(B, I).double(), ValueError),
        (None, TypeError),
    ],
    ids=["rank", "width", "dtype", "kind"],
)
def test_step_input(unit: str, x_t: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"x_t|input"):
        LAYERS[unit](I, H).step(x_t)


@every_unit
@pytest.mark.parametrize("shape", [(L, 1, H), (L, B + 1, H), (L, H)])
def test_step_state(unit: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="hx"):
        LAYERS[unit](I, H, L).step(zeros(B, I), hx(unit, *shape))


def test_nothing_is_broadcast() -> None:
    """A batch of 1 in the state would broadcast in the arithmetic; it must not."""
    for wiring in cases.WIRINGS:
        layer = LAYERS["gru"](I, H, L, wiring=wiring)
        for shape in [(L, 1, H), (1, B, H), (L, B, 1), (1, 1, 1)]:
            with pytest.raises(RuntimeError, match="hx"):
                layer(zeros(T, B, I), zeros(*shape))
