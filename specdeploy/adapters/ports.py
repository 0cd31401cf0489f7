"""Finds and checks TCP ports on the loopback address."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Final

from specdeploy.core.serving import LOOPBACK, Ports
from specdeploy.errors import ConfigError, ServerError

_LISTENING: Final = "0A"


def choose_ports(wanted: Ports) -> Ports:
    """Return ``wanted`` with every 0 replaced by a free port.

    Nothing holds the ports until the server binds them, so a caller must be ready to choose
    again.

    Raises:
        ConfigError: one port was asked for twice.
        ServerError: ports that were asked for are in use; all of them are named, with the
            owner's pid where it can be seen.
    """
    _refuse_twice(wanted)
    with contextlib.ExitStack() as held:
        busy = {name: port for name, port in wanted.chosen.items() if not _hold(held, port)}
        if busy:
            raise _busy_error(busy)
        free = {name: _hold(held, 0) for name, port in dict(wanted).items() if not port}
        return wanted.evolve(**free)


def _refuse_twice(wanted: Ports) -> None:
    options: dict[int, list[str]] = {}
    for name, port in wanted.chosen.items():
        options.setdefault(port, []).append(f"--{name}-port")
    for port, names in options.items():
        if len(names) > 1:
            raise ConfigError(
                f"{' and '.join(names)} are both {port}",
                hint="give each its own, or leave one out to get a free port",
            )


def _hold(held: contextlib.ExitStack, port: int) -> int:
    """Bind ``port`` (0: any) until ``held`` closes and return it, or 0 when it is taken."""
    probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # As the server does it: a port whose old connections linger in TIME_WAIT is free.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((LOOPBACK, port))
        # A bound socket alone does not keep others with SO_REUSEADDR off the port.
        probe.listen(1)
    except OSError:
        return 0
    return int(probe.getsockname()[1])


def _busy_error(busy: dict[str, int]) -> ServerError:
    told = ", ".join(
        f"{port} (--{name}-port{_owner_words(port)})" for name, port in sorted(busy.items())
    )
    word = "ports" if len(busy) > 1 else "port"
    return ServerError(
        f"{word} already in use or not ours to bind: {told}",
        hint="stop what listens there, or leave the option out to get a free port",
    )


def _owner_words(port: int) -> str:
    pid = _owner(port)
    return f", held by process {pid}" if pid else ""


def _owner(port: int) -> int | None:
    inodes = _listening_inodes(port)
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if target.startswith("socket:[") and target[8:-1] in inodes:
                return int(link.parts[2])
    return None


def _listening_inodes(port: int) -> set[str]:
    rows = [*_rows("/proc/net/tcp"), *_rows("/proc/net/tcp6")]
    return {
        fields[9]
        for fields in rows
        if fields[3] == _LISTENING and int(fields[1].rsplit(":", 1)[1], 16) == port
    }


def _rows(table: str) -> list[list[str]]:
    try:
        lines = Path(table).read_text().splitlines()
    except OSError:
        return []
    return [line.split() for line in lines[1:]]
