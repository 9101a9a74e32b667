"""The same examples on every machine, and no network: a test that fails, fails for everybody."""

from __future__ import annotations

import sys

from hypothesis import settings

settings.register_profile("same_everywhere", derandomize=True, deadline=None)
settings.load_profile("same_everywhere")

#: Hosts that a test may speak to: a browser's driver listens on this machine.
_HERE = {None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}


def _refuse(event: str, details: tuple[object, ...]) -> None:
    if event == "socket.connect" and isinstance(details[1], tuple):
        host = details[1][0]
    elif event == "socket.getaddrinfo":
        host = details[0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else host
    if name not in _HERE:
        raise ConnectionRefusedError(f"tests are offline, but something asked for {name}")


sys.addaudithook(_refuse)
