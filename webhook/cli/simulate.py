"""`podgate simulate`: Pods on nodes over virtual time, with and without the scheduler extender."""

import asyncio
import re
from functools import partial
from pathlib import Path

import click
import msgspec

from webhook.app.offline import Offline
from webhook.cli.options import durations
from webhook.cli.options.command_group import WIDE, format_document, output_option
from webhook.cli.simulation_page import format_simulation
from webhook.commands.policy_argument import load_policy
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Amounts, Pod
from webhook.core.scheduling.node_table import SchedulableNode
from webhook.errors import UserError
from webhook.replay.scheduling.extender import has_rules
from webhook.replay.scheduling.nodes import (
    SimulatedNode,
    add_loads,
    add_zones,
    generate_nodes,
    read_nodes,
    read_running_pods,
)
from webhook.replay.scheduling.pods import PodRecording, ScheduledPod, generate_pods
from webhook.replay.scheduling.simulation import compare_schedulers
from webhook.support.input_files import get_standard_input

_NODES_MAX, _PODS_MAX = 5_000, 100_000
_PATH = click.Path(path_type=Path)
_SHARES = re.compile(r"(\d(?:\.\d+)?)\.\.(\d(?:\.\d+)?)")


@click.command()
@click.option("--policy", required=True, type=_PATH, help="The policy document.")
@click.option(
    "--service",
    help="Service of the Pods.  [default: for generated ones, the only one with `scheduling` or `placement.shares`]",
)
@click.option(
    "--nodes",
    default="20",
    show_default=True,
    metavar="N|FILE",
    help="Number of generated nodes, or a file: the output of `kubectl get nodes -o json` or `podgate nodes -o json`.",
)
@click.option("--loads", type=_PATH, help="Load of the nodes in a file: the output of `podgate nodes -o json`.")
@click.option(
    "--topologies",
    type=_PATH,
    help="NUMA zones of the nodes in a file: the output of `kubectl get noderesourcetopologies -o json`.",
)
@click.option("--running", type=_PATH, help="Pods on the nodes in a file: the output of `kubectl get pods -A -o json`.")
@click.option("--node-cpu", default="16", show_default=True, help="CPU of each generated node.")
@click.option("--node-memory", default="64Gi", show_default=True, help="Memory of each generated node.")
@click.option(
    "--load", default="0.2..0.6", show_default=True, help="Lowest and highest used share of the generated nodes."
)
@click.option(
    "--pods",
    default="60",
    show_default=True,
    metavar="N|FILE",
    help="Number of generated Pods, or a file of events as for `podgate replay`.",
)
@click.option("--every", default="0s", show_default=True, help="Time between two generated Pods; 0s: all at once.")
@click.option("--cpu", default="500m", show_default=True, help="CPU request of each generated Pod.")
@click.option("--memory", default="1Gi", show_default=True, help="Memory request of each generated Pod.")
@click.option(
    "--usage",
    type=click.FloatRange(0, 10),
    default=0.85,
    show_default=True,
    help="Share of its requests that a Pod uses.",
)
@click.option(
    "--weight", type=click.IntRange(1, 100), default=5, show_default=True, help="Weight of the extender's scores."
)
@click.option("--for", "after", default="10m", show_default=True, help="Simulated time after the last Pod was created.")
@output_option()
def simulate(  # noqa: PLR0913  one parameter an option
    *,
    policy: Path,
    service: str | None,
    nodes: str,
    loads: Path | None,
    topologies: Path | None,
    running: Path | None,
    node_cpu: str,
    node_memory: str,
    load: str,
    pods: str,
    every: str,
    cpu: str,
    memory: str,
    usage: float,
    weight: int,
    after: str,
    output: str | None,
) -> None:
    """Show where Pods would go, how hot nodes would become, and how long Pods would wait.

    Three schedulers are compared on the same nodes and Pods, in virtual time: a model of kube-scheduler's own spreading
    by requests, node terms and taints; the same with the extender, but without the load that it assumes for
    new Pods; and with the extender as it is. Filters, scores and averages of load are the extender's own code.

    Generated nodes differ in their load, but not in the requests of their Pods. Recorded Pods belong to the service in
    their label, or to the one whose `match` selects them; quotas are left out. A warning names each feature of a Pod
    that is not modelled, such as podAntiAffinity. With `placement.shares` Pods are divided over variants of nodes, the
    generated ones as those of one Deployment; a variant that has no node for a Pod opens.

    Exit code: 0 success, 2 bad input.
    """
    compiled = CompiledPolicy(load_policy(policy, Purpose.SCHEDULE))
    after_seconds = durations.parse_seconds("--for", after)
    if nodes.isdecimal():
        for flag, file in (("--loads", loads), ("--topologies", topologies), ("--running", running)):
            if file is not None:
                raise UserError(f"{flag} {file}: needs recorded nodes", "give --nodes FILE, or remove it")
        size = SchedulableNode(
            "", _parse_amount("--node-cpu", node_cpu, "cpu"), _parse_amount("--node-memory", node_memory, "memory")
        )
        found, on_nodes = generate_nodes(_parse_count("--nodes", nodes, _NODES_MAX), size, *_parse_shares(load))
    else:
        found, on_nodes = _read_recorded_nodes(Path(nodes), loads, topologies, running)
    if pods.isdecimal():
        count = _parse_count("--pods", pods, _PODS_MAX)
        every_seconds = 0.0 if every in {"0", "0s"} else durations.parse_seconds("--every", every)
        requests: Amounts = {"cpu": cpu, "memory": memory}
        _parse_amount("--cpu", cpu, "cpu")
        _parse_amount("--memory", memory, "memory")
        created = generate_pods(count, every_seconds, _choose_service(compiled, policy, service), requests, usage)
    else:
        only = None if service is None else _choose_service(compiled, policy, service)
        created = _read_recorded_pods(Path(pods), PodRecording(compiled, only, usage))
    stores = partial(Offline, compiled.loaded)
    run = compare_schedulers(compiled, found, on_nodes, created, after_seconds, weight, environment=stores)
    result = asyncio.run(run)
    page = format_simulation(result, is_wide=output == WIDE)
    click.echo(format_document(msgspec.to_builtins(result), output) or "\n".join(page))


def _read_recorded_nodes(
    path: Path, loads: Path | None, topologies: Path | None, running: Path | None
) -> tuple[list[SimulatedNode], list[Pod]]:
    if not path.is_file():
        remedy = f"write a number from 1 to {_NODES_MAX}, or give the output of kubectl get nodes -o json"
        raise UserError(f"--nodes {str(path)!r}: neither a number nor a file", remedy)
    found = read_nodes(path)
    if topologies is not None:
        found = add_zones(found, topologies)
    if loads is not None:
        found = add_loads(found, loads)
    if all(node.load is None for node in found):
        raise UserError(f"--nodes {path}: no node has a load", "give --loads FILE, the output of podgate nodes -o json")
    return found, [] if running is None else read_running_pods(running)


def _read_recorded_pods(path: Path, recorded: PodRecording) -> list[ScheduledPod]:
    if str(path) == "-":
        return recorded.read(get_standard_input(), "-")
    try:
        lines = path.open("rb")
    except OSError as error:
        raise UserError(f"--pods {path}: {error.strerror}", "give a number, or a readable file of events") from None
    with lines:
        return recorded.read(lines, str(path))


def _choose_service(policy: CompiledPolicy, path: Path, named: str | None) -> str:
    """Return the service of generated Pods: one on whose Pods the extender acts, or that divides its Pods."""
    acted = [name for name in policy.services if has_rules(policy, name) or name in policy.shares]
    if named is None and len(acted) == 1:
        return acted[0]
    if named in acted:
        return str(named)
    listed = ", ".join(acted) or "none"
    if named is None:
        raise UserError(f"{path}: services with scheduling or shares: {listed}", "give one of them by --service")
    what = "has no scheduling and no shares" if named in policy.services else "is no service of the policy"
    raise UserError(f"--service {named!r}: {what}", f"services with scheduling or shares: {listed}")


def _parse_count(flag: str, text: str, highest: int) -> int:
    if len(text) > len(str(highest)) or not 1 <= int(text) <= highest:
        raise UserError(f"{flag} {text}: not from 1 to {highest}", f"write a number from 1 to {highest}, or a file")
    return int(text)


def _parse_amount(flag: str, text: str, resource: str) -> float:
    """Return millicores or bytes."""
    try:
        found = pod_requests.parse_nano(text)
    except ValueError as error:
        raise UserError(f"{flag} {text!r}: {error}") from None
    if not found and flag in {"--node-cpu", "--node-memory"}:
        raise UserError(f"{flag} {text!r}: a node has some", "write for example 16 or 64Gi")
    return found / (pod_requests.NANO // 1000 if resource == "cpu" else pod_requests.NANO)


def _parse_shares(text: str) -> tuple[float, float]:
    found = _SHARES.fullmatch(text)
    lowest, highest = (float(found[1]), float(found[2])) if found else (1.0, 0.0)
    if not 0 <= lowest <= highest <= 1:
        raise UserError(f"--load {text!r}: not shares from the lowest to the highest", "write for example 0.2..0.6")
    return lowest, highest
