"""Labels of Namespaces by which teams count apart."""

from webhook.core.policy_fields import PerLabel, Quota


def list_team_keys(quota: Quota | None) -> tuple[str, ...]:
    """Return the labels that decide a Namespace's team."""
    if quota is None or not isinstance(quota.per, PerLabel):
        return ()
    return quota.per.namespace_label, get_overflow_key(quota.per.namespace_label)


def get_overflow_key(key: str) -> str:
    """Return the mark of a Namespace whose value is one too many. It is no valid label, so nobody can write it."""
    return f"{key} (others)"
