"""Other processes of ours, by the Python that runs this one."""

import sys


def running(module: str) -> list[str]:
    """The words that run one of our modules as a program.

    -P, for with -m alone whatever lies in the current folder, a yaml.py say, would be imported instead of the real one.
    """
    return [sys.executable, "-u", "-P", "-m", module]
