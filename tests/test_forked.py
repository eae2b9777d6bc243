"""Processes that are forked instead of started: what they are given and what comes back is no different."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest

SAY = """
import os, sys
print(sys.argv[1:], os.environ["ONLY"], len(os.environ), os.getcwd(), sys.stdin.read())
print("heard", file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("start", [forked.Popen, subprocess.Popen])
def test_words_environment_folder_files_and_exit_code(start: type[subprocess.Popen[str]], tmp_path: Path) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), forked.PIPE)
    environment = {"ONLY": "this", "LC_CTYPE": "C.UTF-8"}
    with start([sys.executable, "-c", SAY, "a", "-m"], env=environment, cwd=tmp_path, text=True, **pipes) as process:
        out, error = process.communicate("input")
    assert (process.returncode, error) == (7, "heard\n")
    assert out == f"['a', '-m'] this 2 {tmp_path} input\n"


def test_signals_and_time() -> None:
    with forked.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], stdout=-1) as one:
        assert one.stdout is not None and one.stdout.readline() == b"up\n"
        with pytest.raises(subprocess.TimeoutExpired):
            one.wait(0.01)
        assert one.poll() is None
        os.kill(one.pid, signal.SIGKILL)
        assert one.wait() == -signal.SIGKILL


def test_what_it_starts_is_forked_from_it_and_inherits_no_handler_and_no_text() -> None:
    script = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: print("inherited"))
done = subprocess.run([sys.executable, "-u", "-P", "-m", "gfrnn", "recipies"], env={}, capture_output=True, text=True)
print(done.returncode, done.stderr.split(";")[0])
waiting = "import os, time; os.write(1, b'%d' % os.getppid()); time.sleep(60)"
with subprocess.Popen([sys.executable, "-m", "timeit", "-n1", waiting], stdout=subprocess.PIPE) as one:
    assert int(one.stdout.read(len(str(os.getpid())))) == os.getpid()
    one.terminate()
print(one.returncode)
"""
    done = forked.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "2 gfrnn: unknown command 'recipies'\n-15\n"
