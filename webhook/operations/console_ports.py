"""Ports of a console: the server, its decisions and the process that releases Pods, each found as by its command."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webhook.app.scheduling.extender_ports import open_extenders
from webhook.commands.explain_target import ExplainInputs, ExplainTarget
from webhook.console.interface.act import AskedPod, Hands, RolloutHand
from webhook.console.interface.document_reader import ConsolePorts, Explanation
from webhook.core.reporting.rollout_reports import ChangeDocument
from webhook.errors import UserError
from webhook.operations.console_policies import ClusterPolicies
from webhook.operations.decision_port import open_decision_port
from webhook.operations.pod_explanation import open_explainer
from webhook.operations.rollout_change import RolloutPlace, change_rollout
from webhook.operations.server_discovery import ServerLocation, open_leader, open_server
from webhook.operations.stored_documents import open_overrides
from webhook.support.kubeconfig import Kubeconfig


@asynccontextmanager
async def open_console_ports(
    plain: ServerLocation, decision_url: str | None, extender_url: str | None = None
) -> AsyncIterator[ConsolePorts]:
    """Yield the ports; UserError if no server answers. What else does not answer is named in them."""
    missing: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_server(plain))
        await server.get("/healthz")  # one that is named by its URL has not been asked yet
        decisions = leader = None
        try:
            where = ServerLocation(decision_url, plain.kubeconfig)
            decisions = await stack.enter_async_context(open_decision_port(where))
        except UserError as error:
            missing["decisions"] = _describe(error)
        try:
            leader = await stack.enter_async_context(open_leader(plain))
        except UserError as error:
            missing["leader"] = _describe(error)
        sources = _Sources(plain, decision_url, extender_url)
        policies = ClusterPolicies(plain.kubeconfig, decisions, missing.get("decisions", ""))
        yield ConsolePorts(server, decisions, leader, missing, sources.explain, sources.read_extender, policies)


@dataclass(frozen=True, slots=True)
class _Sources:
    """What is found anew each time, as its command does: Pods are replaced."""

    plain: ServerLocation
    decision_url: str | None
    extender_url: str | None

    async def explain(self, target: ExplainTarget) -> Explanation:
        """Explain an object as `podgate explain` does."""
        inputs = ExplainInputs(
            target,
            self.plain.kubeconfig,
            self.decision_url,
            leader=self.plain.url,
            extender=self.extender_url,
            status=self.plain.url,
        )
        async with open_explainer(inputs) as explainer:
            return Explanation(await explainer.report(), dict(explainer.unread))

    async def read_extender(self, path: str) -> tuple[str, bytes]:
        """Return the name of the first extender that answers, and its body at a path, as `podgate nodes` does."""
        async with open_extenders(self.extender_url, self.plain.kubeconfig) as ports:
            return await ports.read_first(path)


def pin_context(where: ServerLocation) -> ServerLocation:
    """Return the location with the context that is current now: a switch to another cluster does not move a console."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    try:
        document = kubernetes.load_kubeconfig(where.kubeconfig)
    except UserError:  # a server may be found without a cluster; acts name the reason
        return where
    context = where.kubeconfig.context or document["current-context"]
    return replace(where, kubeconfig=replace(where.kubeconfig, context=context))


def build_hands(where: ServerLocation | None, overrides: Path | None) -> Hands:
    """Return where acts write: the kubeconfig's cluster, and the file of overrides if there is one.

    Without `where` there is only the file.
    """
    kubeconfig = Kubeconfig(()) if where is None else where.kubeconfig
    files = Kubeconfig(tuple(path.absolute() for path in kubeconfig.files), kubeconfig.context)
    context = ("--context", files.context) if files.context else ()
    servers = () if where is None or where.url is None else (where.url,)
    return Hands(
        lambda: open_overrides(kubeconfig, overrides),
        None if where is None else _ClusterHands(RolloutPlace(kubeconfig, servers)),
        cluster_arguments=("--kubeconfig", str(files), *context),
        file_arguments=("--overrides", str(overrides.absolute())) if overrides is not None else (),
        server_arguments=tuple(word for url in servers for word in ("--server", url)),
    )


class _ClusterHands:
    """Changes waiting Pods and rollouts as the commands do, each with a connection of its own."""

    def __init__(self, place: RolloutPlace) -> None:
        self._place = place

    async def find_waiting(self, namespace: str, name: str) -> AskedPod:
        from webhook.operations.gated_pod import find_gated  # noqa: PLC0415  loads slowly

        found = await find_gated(self._place.kubeconfig, namespace, name)
        return AskedPod(found.service, found.uid)

    async def drop_waiting(self, namespace: str, name: str, reason: str) -> tuple[AskedPod, str]:
        from webhook.operations.gated_pod import drop_gated  # noqa: PLC0415  loads slowly

        found, unwritten = await drop_gated(self._place.kubeconfig, namespace, name, reason, is_dry=False)
        return AskedPod(found.service, found.uid), unwritten

    async def change_rollout(
        self, command: str, act: Callable[[RolloutHand], Awaitable[Any]]
    ) -> tuple[ChangeDocument, str]:
        return await change_rollout(command, act, self._place)


def _describe(error: UserError) -> str:
    """Return an error on one line, as it stands among the problems of a page."""
    return " ".join((f"{error}: {error.remedy}" if error.remedy else str(error)).split())
