"""The tables of README.md that the code knows better: `python tests/readme_tables.py` writes them.

A section stands between `<!-- table: NAME -->` and `<!-- end -->`; a test holds them equal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

_SECTION = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n"
                   for row in lines)  # fmt: skip


def formats() -> str:
    """Every dialect and parser: what it says of itself, else its module's first sentence."""
    from loganalyze_parsers import DIALECTS, PARSERS

    rows = [(d.name, d.about or _first_sentence(d.reader)) for d in DIALECTS]
    rows += [(p.name, _first_sentence(p.parse)) for p in PARSERS if p.name != "text"]
    return table(("format", "what it reads"), dict.fromkeys((f"`{n}`", about) for n, about in rows))


def _first_sentence(maker: Callable[..., object]) -> str:
    text = sys.modules[maker.__module__].__doc__ or ""
    line = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z\d)`])\.(?= |$)", line)[0].rstrip(":.")


def findings() -> str:
    """Every finding kind with its code."""
    from loganalyze.config import kinds

    rows = [(entry.code, f"`{entry.name}`", entry.en, entry.zh) for entry in kinds().values()]
    return table(("code", "kind", "finding", "中文"), sorted(rows))


def seed_rules() -> str:
    """Every fixed rule of the documents that asked for this program."""
    from loganalyze.config import kinds, load_folder

    rows = []
    for part in load_folder("thresholds"):
        for rule, entry in part.get("seed", {}).items():
            code = kinds()[entry["kind"]].code
            unit = "" if entry["unit"] == "1" else f" {entry['unit']}"
            limit = f"{entry['value']:g}{unit}"
            rows.append((f"`seed.{rule}`", limit, code, entry["severity"], entry["source"]))
    return table(("rule", "limit", "code", "severity", "source"), sorted(rows))


def seed_trees() -> str:
    """Every entry of the documents' troubleshooting tables, and the cause that holds it."""
    from loganalyze.knowledge import seed_table

    return table(("seed entry", "symptom", "cause"), seed_table())


def commands() -> str:
    """The help of every command."""
    import click

    from loganalyze.cli import COMMANDS, cli

    parts = []
    above = click.Context(cli, info_name="loganalyze", **cli.context_settings)
    for name in COMMANDS:
        command = cli.get_command(above, name)
        assert command is not None
        context = click.Context(
            command, parent=above, info_name=name, max_content_width=80, terminal_width=80
        )
        parts.append(f"```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


TABLES: dict[str, Callable[[], str]] = {
    "formats": formats,
    "findings": findings,
    "seed_rules": seed_rules,
    "seed_trees": seed_trees,
    "commands": commands,
}


def filled(text: str) -> str:
    """The text with every section made anew."""
    return _SECTION.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}{m[4]}", text)


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(root), str(root / "parsers")]
    readme = root / "README.md"
    readme.write_text(filled(readme.read_text(encoding="utf-8")), encoding="utf-8")
