"""Parts of `manual_queue` tests that others use, too."""

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.overrides import Override, QueueState, overridden

PAUSE = Override("web", until="2027-01-15T09:00:00Z", reason="INC-1", by="alice", queue=QueueState.PAUSED)


def under(policy: CompiledPolicy, *entries: Override) -> CompiledPolicy:
    return CompiledPolicy(overridden(policy.loaded, {"web": entries}))
