"""``specdeploy serve``: serve a repository on tritonserver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from specdeploy import wiring
from specdeploy.cli import present
from specdeploy.cli.options import Command, json_option, seconds_option, verbosity_options
from specdeploy.cli.places import ServedPlace, find_served
from specdeploy.cli.signals import SignalSwitch
from specdeploy.core.serving import LaunchSpec, Ports, ServerRecord
from specdeploy.workflows.serve import check_repository, require_current, serve


def _port_option(name: str, what: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{name}-port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help=f"Port for {what}; 0 picks a free one. [default: serving.{name}_port, else 0]",
    )


@click.command("serve")
@click.argument(
    "served", required=False, type=click.Path(path_type=Path), metavar="[CONFIG|REPOSITORY]"
)
@click.option(
    "--workspace",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the log and run/server.json.",
)
@_port_option("grpc", "gRPC")
@_port_option("http", "HTTP")
@_port_option("metrics", "metrics")
@seconds_option(
    "--startup-timeout",
    help="Give up when it is not ready by then. [default: serving.startup_timeout_s, else 180]",
)
@click.option("--detach", is_flag=True, help="Return once it is ready and leave it running.")
@json_option
@verbosity_options
def command(
    served: Path | None,
    *,
    workspace: Path | None,
    startup_timeout: float | None,
    detach: bool,
    as_json: bool,
    verbose: int,
    quiet: bool,
    **ports: int | None,
) -> None:
    """Serve a built repository on tritonserver, on 127.0.0.1.

    CONFIG is a specdeploy.yaml (default: ./specdeploy.yaml), REPOSITORY a folder that
    `specdeploy build` rendered. The server counts as ready once every model is loaded and one
    real request was answered; then its addresses are printed. Ctrl-C or SIGTERM stops it in
    order (exit 0), a second one at once. Exits 8 with the cause when a model fails to load,
    the server is not ready in time, or it dies later.

    \b
    Example:
      specdeploy serve
      specdeploy serve pair.yaml --grpc-port 8001 --detach
      specdeploy stop
    """
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    place = find_served(served, workspace, reporter)
    spec = _spec(place, detach=detach, startup_timeout_s=startup_timeout, ports=ports)
    switch = SignalSwitch()

    def on_ready(record: ServerRecord) -> None:
        if as_json:
            present.print_json(record)
        elif not quiet:
            _print_ready(record)
        if not detach:
            reporter.note("press Ctrl-C to stop it")

    tools = wiring.serve_tools(place.workspace, reporter=reporter, stop=switch)
    with switch.listening():
        serve(spec, tools, on_ready=on_ready)


def _spec(
    place: ServedPlace,
    *,
    detach: bool,
    startup_timeout_s: float | None,
    ports: dict[str, int | None],
) -> LaunchSpec:
    described = check_repository(place.repository, wiring.artifacts(place.workspace))
    if place.loaded is not None:
        require_current(described, place.loaded)
    serving = place.serving
    return LaunchSpec(
        # What the workspace's link means now: a later build moves the link.
        repository=str(place.repository.resolve()),
        description=described,
        state_directory=str(place.workspace / "cache"),
        ports=Ports(
            grpc=_given(ports["grpc_port"], serving.grpc_port),
            http=_given(ports["http_port"], serving.http_port),
            metrics=_given(ports["metrics_port"], serving.metrics_port),
        ),
        startup_timeout_s=startup_timeout_s or serving.startup_timeout_s,
        outlives_us=detach,
    )


def _given(flag: int | None, setting: int) -> int:
    return setting if flag is None else flag


def _print_ready(record: ServerRecord) -> None:
    ends = record.endpoints
    click.echo(f"ready    {record.entry_model} ({record.shape} shape, {_method(record)})")
    click.echo(f"gRPC     {ends.grpc}")
    click.echo(f"HTTP     http://{ends.http}")
    click.echo(f"metrics  http://{ends.metrics}/metrics")
    click.echo(f"process  {record.pid}")
    click.echo(f"log      {record.log}")


def _method(record: ServerRecord) -> str:
    if record.method == "none":
        return "no speculation"
    return f"{record.method}, draft length {record.draft_length}"
