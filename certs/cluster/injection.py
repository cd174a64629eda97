"""cert-manager as the authority: its injector writes the bundles of all configurations, and nobody else does."""

from datetime import datetime

from certs.cluster import webhooks
from certs.cluster.api import Api, OvertakenError
from certs.cluster.secrets import NAMESPACE
from certs.cluster.tasks import MENDED, OTHER, Done, Looked, told
from certs.cluster.webhooks import CONFIGURATIONS
from certs.errors import CertsError

CERTIFICATE = f"{NAMESPACE}/podgate-serving"
"""The Certificate whose CA the API server has to trust (manifests/cert-manager)."""


class Injection:
    """A Duty: keeps the injector's annotation where it belongs, and writes nothing else."""

    def __init__(self) -> None:
        self._right: set[str] = set()

    async def look(self, api: Api, now: datetime) -> Looked:  # noqa: ARG002  nothing here has a time
        troubles: list[str] = []
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
                return Looked(None, tuple(troubles), is_overtaken=True)
            except CertsError as error:
                troubles.append(told(error))
            else:
                kind = MENDED if place in self._right else OTHER
                return Looked(Done(kind, place, f"annotated: its bundle is that of {CERTIFICATE}"), tuple(troubles))
        return Looked(None, tuple(troubles))
