"""The command: `python -m loganalyze`, and `loganalyze` as it is installed."""

import gc
import sys
from typing import NoReturn


def program() -> NoReturn:
    """Run it, and end the process."""
    # Nearly all objects of a command stay to its end, those of the modules first of all: to look
    # for cycles at Python's own pace (every 700 objects) takes a tenth of a short command's time.
    gc.set_threshold(200_000, 50, 50)
    # A thread that comes back from numpy or polars waits half a millisecond for its turn, not five.
    sys.setswitchinterval(0.0005)
    from loganalyze import cli

    cli.program()


if __name__ == "__main__":
    program()
