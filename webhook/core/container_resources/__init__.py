"""Container resources: LimitRange-style defaults, min and max for containers and Pods, by Clamp or Deny.

A whole Pod is measured by the scheduler's own formula.
"""

from webhook.core.container_resources.container_plan import shorten_name
from webhook.core.container_resources.outdated_amounts import remove_written_amounts
from webhook.core.container_resources.outdated_limits import remove_outdated_limits
from webhook.core.container_resources.plan import RangePlan
from webhook.core.container_resources.qos import find_qos_class
from webhook.core.container_resources.rewrite import apply_plan, build_operations, find_qos_change
from webhook.core.container_resources.violations import find_violations

__all__ = [
    "RangePlan",
    "apply_plan",
    "build_operations",
    "find_qos_change",
    "find_qos_class",
    "find_violations",
    "remove_outdated_limits",
    "remove_written_amounts",
    "shorten_name",
]
