"""Telemetry of a process: metrics, logs and traces as one observer, and report callbacks for other parts."""

from webhook.app.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
