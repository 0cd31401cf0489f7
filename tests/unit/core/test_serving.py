from __future__ import annotations

from specdeploy.core.serving import (
    Ports,
    ServerArguments,
    endpoints_of,
    triton_arguments,
)

PORTS = Ports(grpc=1, http=2, metrics=3)


def arguments(**changes: object) -> list[str]:
    values = ServerArguments(
        identity="specdeploy-1", repository="/r", backends="/b", ports=PORTS, stop_timeout_s=5
    )
    return triton_arguments(values.evolve(**changes))


def test_every_service_binds_to_the_loopback_address_only() -> None:
    addresses = [word for word in arguments() if "-address=" in word]
    assert addresses == [
        "--grpc-address=127.0.0.1",
        "--http-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
    ]


def test_shared_memory_is_named_after_the_server() -> None:
    assert "--backend-config=python,shm-region-prefix-name=specdeploy-1-" in arguments()


def test_an_installation_with_its_own_backends_is_left_to_find_them() -> None:
    assert [word for word in arguments(backends=None) if "backend-directory" in word] == []


def test_further_arguments_come_last() -> None:
    assert arguments(extra=["--log-verbose=1"])[-1] == "--log-verbose=1"


def test_addresses_are_host_and_port() -> None:
    ends = endpoints_of(PORTS)
    assert (ends.grpc, ends.http, ends.metrics) == ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")


def test_ports_that_were_asked_for_are_known_by_name() -> None:
    assert Ports(http=8000).chosen == {"http": 8000}
