"""Release queue of gated Pods: SLA class, age and fit determine which Pod is released next."""

from webhook.core.release_queue.model import Member, WaitingPod
from webhook.core.release_queue.order import ReleaseOrder

__all__ = ["Member", "ReleaseOrder", "WaitingPod"]
