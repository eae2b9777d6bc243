"""Where what can be made or fetched again is kept."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$GFRNN_CACHE, or gfrnn in the user's cache folder."""
    if os.environ.get("GFRNN_CACHE"):
        return Path(os.environ["GFRNN_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gfrnn"
