"""Role of a process, which determines what it counts."""

import os

from webhook.adapters.metrics import ProcessRole
from webhook.settings import MEMORY, ControllerSettings, ProcessSettings, Settings, in_cluster


def role_of(settings: ProcessSettings) -> ProcessRole:
    """Return the roles of this process: a server with in-memory counters reconciles them as well."""
    if not isinstance(settings, ControllerSettings):
        return ProcessRole.SCHEDULES
    if not isinstance(settings, Settings):
        return ProcessRole.RECONCILES
    if settings.store != MEMORY:
        return ProcessRole.REVIEWS | ProcessRole.SHARES_STORE
    has_cluster = settings.kubeconfig is not None or in_cluster(os.environ)
    return ProcessRole.REVIEWS | ProcessRole.RECONCILES if has_cluster else ProcessRole.REVIEWS
