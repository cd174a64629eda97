"""Release queue of gated Pods: SLA class, age and fit determine which Pod is released next."""

from webhook.core.release_queue.forecast import ReleaseForecast, RoomSample
from webhook.core.release_queue.lane import UNANSWERED
from webhook.core.release_queue.model import Member, WaitingPod
from webhook.core.release_queue.order import ReleaseOrder
from webhook.core.release_queue.sequence import QueuedPod

__all__ = ["UNANSWERED", "Member", "QueuedPod", "ReleaseForecast", "ReleaseOrder", "RoomSample", "WaitingPod"]
