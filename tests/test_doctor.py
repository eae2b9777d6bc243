"""`gfrnn doctor`: each backend is active, or the report says why not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

import gfrnn
from gfrnn import ops
from gfrnn.cli import main
from gfrnn.ops import doctor

EVERYTHING_BUT = {name for name in ops.BACKENDS if name != "cpu"}
# A process of its own: whether there is an op is settled when the package is imported.
WITHOUT_OP = {**os.environ, "GFRNN_NO_OP": "1"}


def test_facts() -> None:
    found = doctor.facts()
    assert found["gfrnn"] == gfrnn.__version__
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert set(found["backends"]) == set(ops.BACKENDS)
    assert found["backends"]["reference"] == {"active": True, "why_not": []}
    assert found["auto"] == next(name for name in ops.AUTO if found["backends"][name]["active"])


def test_report_and_json_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    for word in (found["torch"], found["python"], found["cpu_capability"], *found["backends"]):
        assert word in text


ALONE = """
import torch, gfrnn
from gfrnn.cli import main
main(["doctor", "--json"])
print("---")
main(["doctor"])
print("---")
layer, x = gfrnn.GFLSTM(3, 4, 2), torch.randn(5, 2, 3)
layer(x)[0].sum().backward()
layer.backend = "cpu"
try:
    layer(x)
except RuntimeError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def without_op() -> list[str]:
    """Where there is no op: the report as JSON and as text, and what a layer says that is told to use it."""
    command = [sys.executable, "-c", ALONE]
    return subprocess.run(command, env=WITHOUT_OP, capture_output=True, text=True, check=True).stdout.split("\n---\n")


def test_a_missing_op_is_said_and_replaced(without_op: list[str]) -> None:
    found, text = json.loads(without_op[0]), without_op[1]
    assert not found["backends"]["cpu"]["active"]
    assert "GFRNN_NO_OP" in found["backends"]["cpu"]["why_not"][0]
    assert all(found["backends"][name]["active"] for name in EVERYTHING_BUT)
    assert found["auto"] == "manual"
    assert "not here" in text
    assert "GFRNN_NO_OP" in text


def test_without_the_op_the_layers_work_and_cpu_is_refused(without_op: list[str]) -> None:
    assert "backend 'cpu' cannot run this call" in without_op[2]
    assert "GFRNN_NO_OP" in without_op[2]
