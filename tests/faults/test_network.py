"""Three hosts, the cable of one cut in mid-training: nobody hangs. The hosts are network namespaces of this machine."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from harness import exit_code
from ranks import words
from test_ranks import wait_for_step

from gfrnn.errors import DataError, LostContact
from gfrnn.training.distributed import GRACE
from gfrnn.training.watchdog import Watchdog

LIMIT = 10.0  # GFRNN_TIMEOUT
LEAVING = 15.0  # seconds a process may take, on a busy machine, from its decision to leave to its end
HOSTS = 3


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def namespace(name: str) -> Iterator[str]:
    try:
        ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", None) or error
        pytest.skip(f"network namespaces cannot be made here (that takes root and iproute2): {str(why).strip()}")
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "del", name)


@pytest.fixture
def network() -> Iterator[tuple[str, list[str]]]:
    """A switch with the ports port0 ..., and hosts whose eth0 is connected to them: 10.0.0.1 ..."""
    tag = secrets.token_hex(3)
    with ExitStack() as stack:
        switch = stack.enter_context(namespace(f"gfrnn-{tag}"))
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        hosts = [stack.enter_context(namespace(f"gfrnn-{tag}-{number}")) for number in range(HOSTS)]
        for number, host in enumerate(hosts):
            port = f"port{number}"
            ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", host, "address", "add", f"10.0.0.{number + 1}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
        yield switch, hosts


def start(host: str, rank: int, line: list[str]) -> subprocess.Popen[str]:
    place = {"RANK": str(rank), "WORLD_SIZE": str(HOSTS), "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    environment = {**os.environ, **place, "GLOO_SOCKET_IFNAME": "eth0", "GFRNN_TIMEOUT": str(LIMIT)}
    command = ["ip", "netns", "exec", host, sys.executable, "-m", "gfrnn", *line]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.soak
@pytest.mark.parametrize(("rank", "where"), [(0, "cable"), (1, "cable"), (2, "cable"), (0, "host"), (2, "host")])
def test_nobody_hangs_when_a_cable_is_cut(
    rank: int,
    where: str,
    network: tuple[str, list[str]],
    tmp_path: Path,
    survived: Callable[[int, int, str], None],
) -> None:
    """Cut on its way, or switched off in the host itself, which then has no way at all to anybody."""
    switch, hosts = network
    options = {"updates": 1_000_000, "checkpoint_every": 20, "log_every": 2, "validate_every": 1_000_000}
    line = [*words(tmp_path, **options), "--out", str(tmp_path / "run")]
    processes = [start(host, number, line) for number, host in enumerate(hosts)]
    try:
        wait_for_step(processes[0], tmp_path / "run", 30)
        cut_off = (switch, f"port{rank}") if where == "cable" else (hosts[rank], "eth0")
        ip("-n", cut_off[0], "link", "set", cut_off[1], "down")
        cut, left = time.monotonic(), []
        for number, process in enumerate(processes):
            _, error = process.communicate(timeout=LIMIT + GRACE + LEAVING - (time.monotonic() - cut))
            left.append(time.monotonic() - cut)
            assert process.returncode == LostContact.exit_code
            assert error.count("\n") <= 1
            # Who could tell the first process leaves it to that to speak.
            sentence = f"process {number} lost contact with another one, which died, hangs or cannot be reached"
            assert sentence in error or number not in (0, rank)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    survived(len(left), HOSTS, f"hosts left when host {rank} was cut off ({where}), after {max(left):.0f} s at most")


def wait_in_vain(file: Path, seconds: float) -> None:
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), 2)
    read, _write = os.pipe()
    with Watchdog().within(seconds, DataError("waited in vain")):
        os.read(read, 1)


def wait_a_little(file: Path) -> None:
    watchdog = Watchdog()
    for _ in range(5):
        with watchdog.within(10, DataError("outer")):
            with watchdog.within(0.4, DataError("inner")):
                time.sleep(0.1)
            time.sleep(0.5)
    time.sleep(1)
    watchdog.stop()


def test_the_watchdog_ends_a_process_that_waits_in_vain(tmp_path: Path) -> None:
    start = time.monotonic()
    assert exit_code(wait_in_vain, tmp_path / "said", 0.5) == DataError.exit_code
    assert time.monotonic() - start < 30
    assert (tmp_path / "said").read_text() == "gfrnn: waited in vain\n"


def test_the_watchdog_leaves_alone_who_is_in_time(tmp_path: Path) -> None:
    assert exit_code(wait_a_little, tmp_path) == 0
