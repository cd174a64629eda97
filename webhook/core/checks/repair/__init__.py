"""Commands that repair one installation, rendered for its way of running."""

from webhook.core.checks.repair.command import (
    RENDERED,
    install,
    install_or_apply,
    render,
    restore_policy,
    way_back,
    with_context,
    with_stored,
)
from webhook.core.checks.repair.installation import has_controller, is_at_target, manager_of

__all__ = [
    "RENDERED",
    "has_controller",
    "install",
    "install_or_apply",
    "is_at_target",
    "manager_of",
    "render",
    "restore_policy",
    "way_back",
    "with_context",
    "with_stored",
]
