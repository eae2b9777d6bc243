"""Weights that start late, in pieces, or in 16 bits start as any others."""

from __future__ import annotations

from typing import Any

import cases
import pytest
import torch
import torch.distributed as dist
from cases import HIDDEN, INPUT, Case, every_case
from ranks import together

from gfrnn.models import CharLM

OPTIONS: dict[str, Any] = {"unit": "lstm", "hidden_size": 6, "num_layers": 2, "forget_bias": 2.0, "input_std": 0.5}


def start(model: torch.nn.Module) -> None:
    """What torch's tutorials do after `to_empty`. What was not started shows as NaN."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    torch.manual_seed(1)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


def fresh() -> CharLM:
    torch.manual_seed(1)
    return CharLM(**OPTIONS)


@every_case
def test_a_layer_from_the_meta_device_starts_like_a_new_one(case: Case) -> None:
    kind = cases.LAYERS[case.unit]
    late = kind(INPUT, HIDDEN, device="meta", input_std=0.5, **case.options).to_empty(device="cpu")
    start(late)
    torch.manual_seed(1)
    new = kind(INPUT, HIDDEN, input_std=0.5, **case.options)
    for (name, one), other in zip(late.named_parameters(), new.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_a_model_from_the_meta_device_starts_like_a_new_one() -> None:
    with torch.device("meta"):
        late = CharLM(**OPTIONS)
    start(late.to_empty(device="cpu"))
    assert all(torch.equal(p, q) for p, q in zip(late.parameters(), fresh().parameters(), strict=True))


def sharded(rank: int) -> list[str]:
    """FSDP2's usual start; the names of parameters that are not those of a new model, and of what they then do."""
    from torch.distributed.device_mesh import init_device_mesh  # both take seconds
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    with torch.device("meta"):
        model = CharLM(**OPTIONS)
    for module in (model.layer, model):
        fully_shard(module, mesh=mesh)
    register_fsdp_forward_method(model, "loss")
    model.to_empty(device="cpu")
    start(model)
    expected = fresh()
    wrong = [
        name
        for (name, piece), whole in zip(model.named_parameters(), expected.parameters(), strict=True)
        if not torch.equal(piece.full_tensor(), whole)
    ]
    ids = torch.arange(12).view(6, 2)
    for one in (model, expected):
        one.loss(ids[:-1], ids[1:])[0].backward()
    for (name, piece), whole in zip(model.named_parameters(), expected.parameters(), strict=True):
        if not torch.allclose(piece.grad.full_tensor(), whole.grad, atol=1e-7):
            wrong.append(f"gradient of {name}")
    dist.destroy_process_group()
    return wrong


@pytest.mark.parametrize("size", [1, 2])
def test_fsdp2_starts_and_trains_like_a_new_model(size: int) -> None:
    assert together(sharded, size=size) == [[]] * size


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("unit", cases.UNITS)
def test_16_bits_start_as_the_rounded_start_of_32(unit: str, dtype: torch.dtype) -> None:
    layers = []
    for chosen in (torch.float32, dtype):
        torch.manual_seed(1)
        layers.append(cases.LAYERS[unit](INPUT, HIDDEN, 2, dtype=chosen, wiring="gated"))
    for (name, wide), narrow in zip(layers[0].named_parameters(), layers[1].parameters(), strict=True):
        assert narrow.dtype == dtype
        assert torch.equal(wide.to(dtype), narrow), name
    x = cases.dense_input(dtype=dtype)
    torch.testing.assert_close(layers[1](x)[0].float(), layers[0](x.float())[0], atol=0.03, rtol=0)
