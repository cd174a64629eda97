"""What a service's containers and Pods may ask, in LimitRange's words: defaults, min and max, by clamping or denial.

The Pod as a whole is judged by the scheduler's own sum.
"""

from webhook.core.ranges.lacking import lacks
from webhook.core.ranges.plan import RangePlan
from webhook.core.ranges.qos import qos_class
from webhook.core.ranges.rewriting import operations, qos_change
from webhook.core.ranges.shapes import shown_name

__all__ = ["RangePlan", "lacks", "operations", "qos_change", "qos_class", "shown_name"]
