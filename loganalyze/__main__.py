"""`python -m loganalyze`."""

from loganalyze.cli import program

program()
