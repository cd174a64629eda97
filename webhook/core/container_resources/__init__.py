"""What a service's containers and Pods may ask, in LimitRange's words: defaults, min and max, by clamping or denial.

The Pod as a whole is judged by the scheduler's own sum.
"""

from webhook.core.container_resources.container_cache import shown_name
from webhook.core.container_resources.findings import lacks
from webhook.core.container_resources.plan import RangePlan
from webhook.core.container_resources.qos import qos_class
from webhook.core.container_resources.rewrite import operations, qos_change

__all__ = ["RangePlan", "lacks", "operations", "qos_change", "qos_class", "shown_name"]
