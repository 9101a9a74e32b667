"""Builds the optional inner loops in C; without a C compiler the package is pure Python.

Run by pip through hatchling. In a checkout without an installation: `python hatch_build.py`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
FOLDER = ROOT / "loganalyze" / "compiled"
SOURCES = tuple(FOLDER / name for name in ("kernel.c", "lines.c", "medians.c", "loops.h"))
NAME = "kernel.native"  # on all systems: it is loaded by its path, and no module of Python's

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    BuildHookInterface = object  # type: ignore[assignment, misc]


def build(target: Path) -> str:
    """Compile the kernel; why there is none, or an empty text. CC and CFLAGS are heeded."""
    own = str(sysconfig.get_config_var("CC") or "cc").split()[0]
    made = target.with_name(f"{target.name}.{os.getpid()}")
    command = [
        *shlex.split(os.environ.get("CC", own)), "-O3", "-fno-tree-vectorize",
        "-std=gnu11", "-ffp-contract=off",
        "-fPIC", "-fvisibility=hidden", "-shared",
        f"-DLOGANALYZE_SOURCE={zlib.crc32(b''.join(one.read_bytes() for one in SOURCES))}u",
        *shlex.split(os.environ.get("CFLAGS", "")),
        *(str(one) for one in SOURCES if one.suffix == ".c"), "-o", str(made),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode or not made.is_file():
        return done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
    made.replace(target)  # at once: a process may have the old one open
    return ""


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Puts the kernel into a wheel, or beside its source for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it gathers the files."""
        if self.target_name != "wheel":
            return
        if version == "editable":
            why = build(FOLDER / NAME)
        else:
            self._folder = tempfile.TemporaryDirectory()
            library = Path(self._folder.name) / NAME
            why = build(library)
            if not why:
                build_data["force_include"][str(library)] = f"loganalyze/compiled/{NAME}"
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{_platform()}"
        if why:
            self.app.display_warning(f"loganalyze is built without its C kernel: {why}")


def _platform() -> str:
    """This platform in the form of a wheel's name; the library needs nothing of Python's."""
    from packaging.tags import sys_tags

    names = (tag.platform for tag in sys_tags())
    return next(name for name in names if "manylinux" not in name and "musllinux" not in name)


if __name__ == "__main__":
    sys.exit(build(FOLDER / NAME) or 0)
