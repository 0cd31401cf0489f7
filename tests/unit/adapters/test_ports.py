from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from specdeploy.adapters.ports import choose_ports
from specdeploy.core.serving import Ports
from specdeploy.errors import ConfigError, ServerError


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_zeros_become_three_different_free_ports() -> None:
    chosen = choose_ports(Ports())
    ports = {chosen.grpc, chosen.http, chosen.metrics}
    assert len(ports) == 3
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_free_port_that_was_asked_for_is_kept() -> None:
    free = choose_ports(Ports()).grpc
    assert choose_ports(Ports(grpc=free)).grpc == free


def test_a_port_in_use_is_named_with_its_option_and_owner(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(ServerError, match=rf"{port} \(--http-port, held by process {os.getpid()}"):
        choose_ports(Ports(http=port))


def test_every_port_in_use_is_named(listener: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = Ports(grpc=listener.getsockname()[1], metrics=other.getsockname()[1])
        with pytest.raises(ServerError) as caught:
            choose_ports(taken)
    assert f"{taken.grpc} (--grpc-port" in str(caught.value)
    assert f"{taken.metrics} (--metrics-port" in str(caught.value)


def test_a_port_that_somebody_holds_on_every_address_is_in_use() -> None:
    everywhere = socket.create_server(("0.0.0.0", 0))
    with everywhere, pytest.raises(ServerError, match="--grpc-port"):
        choose_ports(Ports(grpc=everywhere.getsockname()[1]))


def test_one_port_cannot_serve_twice() -> None:
    free = choose_ports(Ports()).grpc
    with pytest.raises(ConfigError, match=f"--grpc-port and --http-port are both {free}"):
        choose_ports(Ports(grpc=free, http=free))
