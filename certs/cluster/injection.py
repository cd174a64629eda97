"""CA bundles by cert-manager: the annotation by which its injector writes the bundle of each configuration."""

from datetime import datetime

from certs.cluster import webhooks
from certs.cluster.api import Api, OvertakenError
from certs.cluster.loop import MENDED, OTHER, Action, TaskResult, format_error
from certs.cluster.secrets import NAMESPACE
from certs.cluster.webhooks import CONFIGURATIONS
from certs.errors import CertsError

CERTIFICATE = f"{NAMESPACE}/podgate-serving"
"""The Certificate whose CA the API server has to trust (manifests/cert-manager)."""


class CaInjection:
    """Task: keep the injector's annotation on every configuration; write nothing else."""

    def __init__(self) -> None:
        self._right: set[str] = set()

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:  # noqa: ARG002  nothing here depends on the time
        errors: list[str] = []
        for place in CONFIGURATIONS:
            try:
                found = await webhooks.find(api, place)
                if found is None:
                    continue
                if found.injected_from == CERTIFICATE:
                    self._right.add(place)
                    continue
                await found.inject(api, CERTIFICATE)
            except OvertakenError:
                return TaskResult(None, tuple(errors), is_overtaken=True)
            except CertsError as error:
                errors.append(format_error(error))
            else:
                kind = MENDED if place in self._right else OTHER
                text = f"annotated: cert-manager injects the CA bundle of {CERTIFICATE}"
                return TaskResult(Action(kind, place, text), tuple(errors))
        return TaskResult(None, tuple(errors))
