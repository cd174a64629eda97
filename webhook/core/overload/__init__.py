"""Overload of a server: judged by the durations and failures of its own reviews, and by its store."""

from webhook.core.overload.detector import SLICES, OverloadDetector
from webhook.core.overload.limits import OverloadCause, OverloadLimits

__all__ = ["SLICES", "OverloadCause", "OverloadDetector", "OverloadLimits"]
