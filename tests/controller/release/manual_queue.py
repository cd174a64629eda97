"""Helpers of the `manual_queue` tests that other tests use, too."""

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.overrides import Override, QueueState, apply_overrides

PAUSE = Override("web", until="2027-01-15T09:00:00Z", reason="INC-1", by="alice", queue=QueueState.PAUSED)


def apply_override(policy: CompiledPolicy, *entries: Override) -> CompiledPolicy:
    return CompiledPolicy(apply_overrides(policy.loaded, {"web": entries}))
