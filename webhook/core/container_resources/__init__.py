"""Container resources: LimitRange-style defaults, min and max for containers and Pods, by Clamp or Deny.

A whole Pod is measured by the scheduler's own formula.
"""

from webhook.core.container_resources.container_plan import shown_name
from webhook.core.container_resources.plan import RangePlan
from webhook.core.container_resources.qos import qos_class
from webhook.core.container_resources.rewrite import operations, qos_change
from webhook.core.container_resources.violations import violations

__all__ = ["RangePlan", "operations", "qos_change", "qos_class", "shown_name", "violations"]
