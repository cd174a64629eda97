"""Trace spans of sampled reviews, created after the review, so that reviews which are not sampled pay nothing."""

from webhook.adapters.traces.sampling import FOLLOWED_PER_SECOND_MAX, RATIO, RatioSampler
from webhook.adapters.traces.trace_observer import Traces, open_traces

__all__ = ["FOLLOWED_PER_SECOND_MAX", "RATIO", "RatioSampler", "Traces", "open_traces"]
