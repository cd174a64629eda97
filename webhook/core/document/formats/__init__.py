"""Formats of the schema (labels, durations, resources, ...), each with reason and remedy for invalid text."""

from webhook.core.document.formats.format_check import check, find_fault, fits
from webhook.core.document.formats.names import FormatError

__all__ = ["FormatError", "check", "find_fault", "fits"]
