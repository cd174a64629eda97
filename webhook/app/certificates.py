"""Certificate maintenance by the leader, unless cert-manager does it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from webhook.app.telemetry import Telemetry
from webhook.settings import Certificates, ControllerSettings

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

    from certs.cluster.ca_controller import CertificatePlan
    from certs.cluster.loop import Action, Task
    from certs.cluster.scheduler_ca_controller import SchedulerCertificatePlan
    from certs.token_rotation import Issuer

_SERVING_SETTLE_MAX = timedelta(minutes=1)
"""API servers observe a change of a webhook configuration within seconds; a minute is slack."""
_CLIENT_SETTLE_MAX = timedelta(minutes=5)
"""A mounted Secret is updated in a Pod within two minutes, and the server checks it every five seconds."""
_SCHEDULER_SETTLE_MAX = timedelta(days=30)
"""kube-scheduler reads the CA of its extender at its start only."""
_CHECKS_PER_LIFETIME = 30
_AUDIENCE = "podgate"


@dataclass(frozen=True, slots=True)
class BootstrapResult:
    """The writes of one pass over all tasks, and the errors that are left."""

    done: tuple[str, ...]
    errors: tuple[str, ...]


class CertificateController:
    """Loop that maintains certificates, with its logs and metrics. `build_status` returns its part of /status."""

    def __init__(self, settings: ControllerSettings, telemetry: Telemetry, client: "ApiClient") -> None:
        self._settings = settings
        self._logs = telemetry.logs
        self._totals = telemetry.metrics.kept_certificates
        self._failing = telemetry.metrics.failing_writes
        self._client = client
        self._errors: list[str] = []
        self._ends: dict[str, datetime] = {}

    async def run(self, is_leader: Callable[[], bool]) -> None:
        """Maintain the certificates while `is_leader`, until cancelled."""
        from certs.cluster import loop  # noqa: PLC0415  its libraries take long to load

        reports = loop.TaskReports(self._on_action, self._on_error, self._on_recovered, self._on_ends, self._on_reset)
        lives = [timedelta(seconds=seconds) for seconds in _list_lifetimes(self._settings)]
        for remark in (
            () if self._settings.certificates is not Certificates.OWN else _build_plan(self._settings).list_remarks()
        ):
            self._logs.write_event("warning", "unusual certificate lifetimes", reason=remark)
        every_seconds = min(lives).total_seconds() / _CHECKS_PER_LIFETIME
        await loop.run(self._client, is_leader, list_tasks(self._settings), reports, every_seconds)

    def build_status(self) -> dict[str, Any]:
        return {
            "keptBy": self._settings.certificates,
            "errors": list(self._errors),
            "secrets": {name: f"{at:%Y-%m-%dT%H:%M:%SZ}" for name, at in sorted(self._ends.items())},
        }

    def _on_action(self, done: "Action") -> None:
        from certs.cluster.loop import MADE, MENDED  # noqa: PLC0415  as above

        if done.kind == MADE:
            self._totals.count_issued(done.what)
        elif done.kind == MENDED:
            self._totals.count_mended(done.what)
        level = "warning" if done.kind == MENDED else "info"
        self._logs.write_event(level, "certificates maintained", object=done.what, did=done.text)

    def _on_error(self, reason: str) -> None:
        self._errors.append(reason)
        self._totals.count_trouble()
        self._failing.set("certificates", fails=True)
        self._logs.write_event("error", "certificate maintenance failed", reason=reason)

    def _on_recovered(self, reason: str) -> None:
        self._errors.remove(reason)
        self._failing.set("certificates", fails=bool(self._errors))
        self._logs.write_event("info", "certificate maintenance recovered", reason=reason)

    def _on_ends(self, ends: Mapping[str, datetime]) -> None:
        self._ends.update(ends)
        self._totals.set_kept({name: at.timestamp() for name, at in self._ends.items()})

    def _on_reset(self) -> None:
        self._errors.clear()
        self._failing.set("certificates", fails=False)
        self._ends.clear()
        self._totals.set_kept({})


async def bootstrap(settings: ControllerSettings) -> BootstrapResult:
    """Run the leader's tasks once, for a cluster that has no leader yet."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  as above

    client = await kubernetes.connect(settings.kubeconfig)
    try:
        return await bootstrap_client(client, settings)
    finally:
        await client.close()


async def bootstrap_client(client: "ApiClient", settings: ControllerSettings) -> BootstrapResult:
    """Run the leader's tasks once with this client; the settings' kubeconfig is not used."""
    from certs.cluster import loop  # noqa: PLC0415  as above
    from certs.cluster.api import Api  # noqa: PLC0415  as above

    done: list[str] = []
    reports = loop.TaskReports(
        lambda action: done.append(f"{action.what}: {action.text}"),
        *(lambda _: None, lambda _: None, lambda _: None),
        lambda: None,
    )
    errors = await loop.reconcile(Api(client, lambda: True), _list_bootstrap_tasks(settings), reports)
    return BootstrapResult(tuple(done), errors)


def list_tasks(settings: ControllerSettings) -> "list[Task]":
    """Return the leader's tasks."""
    from certs.cluster.port_switch import PortCleanup  # noqa: PLC0415  as above

    found = _list_bootstrap_tasks(settings)
    if settings.certificates is Certificates.OWN and settings.caller_ports is None:
        found.append(PortCleanup())
    return found


def _list_bootstrap_tasks(settings: ControllerSettings) -> "list[Task]":
    """Return the tasks that `bootstrap` runs too. Not PortCleanup: `bootstrap` may not know of the leader's ports."""
    from certs.cluster.ca_controller import CaController  # noqa: PLC0415  as above
    from certs.cluster.injection import CaInjection  # noqa: PLC0415  as above
    from certs.cluster.port_switch import PortSwitch  # noqa: PLC0415  as above
    from certs.cluster.scheduler_ca_controller import SchedulerCaController  # noqa: PLC0415  as above
    from certs.cluster.token_controller import TokenController  # noqa: PLC0415  as above

    found: list[Task] = []
    if settings.certificates is Certificates.CERT_MANAGER:
        found.append(CaInjection())
    elif settings.certificates is Certificates.OWN:
        found.append(CaController(_build_plan(settings)))
        if settings.scheduler_certificates:
            found.append(SchedulerCaController(_build_scheduler_plan(settings)))
    if settings.caller_ports is not None:
        found.append(PortSwitch(settings.caller_ports))
    if settings.token_issuer is not None:
        found.append(TokenController(_build_issuer(settings, settings.token_issuer)))
    return found


def _build_plan(settings: ControllerSettings) -> "CertificatePlan":
    from certs.cluster.ca_controller import CertificatePlan  # noqa: PLC0415  as above
    from certs.lifetimes import Lifetimes  # noqa: PLC0415  as above

    serving_ca, serving, client_ca, client = (timedelta(seconds=seconds) for seconds in _list_lifetimes(settings))
    return CertificatePlan(
        Lifetimes.from_settle_max(serving_ca, serving, _SERVING_SETTLE_MAX),
        Lifetimes.from_settle_max(client_ca, client, _CLIENT_SETTLE_MAX),
    )


def _build_scheduler_plan(settings: ControllerSettings) -> "SchedulerCertificatePlan":
    from certs import CA_LIFETIME  # noqa: PLC0415  as above
    from certs.cluster.scheduler_ca_controller import SchedulerCertificatePlan  # noqa: PLC0415  as above
    from certs.lifetimes import Lifetimes  # noqa: PLC0415  as above

    return SchedulerCertificatePlan(
        Lifetimes.from_settle_max(
            CA_LIFETIME, timedelta(seconds=settings.serving_lifetime_seconds), _SCHEDULER_SETTLE_MAX
        ),
        _build_plan(settings).client,
    )


def _build_issuer(settings: ControllerSettings, name: str) -> "Issuer":
    from certs.token_rotation import Issuer  # noqa: PLC0415  as above

    lives, key_lives = settings.token_lifetime_seconds, settings.token_key_lifetime_seconds
    return Issuer(name, _AUDIENCE, settings.token_subject, settings.token_subject, int(lives), int(key_lives))


def _list_lifetimes(settings: ControllerSettings) -> tuple[float, float, float, float]:
    return (
        settings.serving_ca_lifetime_seconds,
        settings.serving_lifetime_seconds,
        settings.client_ca_lifetime_seconds,
        settings.client_lifetime_seconds,
    )
