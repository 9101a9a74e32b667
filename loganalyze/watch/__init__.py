"""Keeps a run under watch while it is still being written: new findings as they show."""
