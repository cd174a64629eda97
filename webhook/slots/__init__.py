"""Slots: a new Pod of a workload gets the lowest free slot of its owner, and the variant of that slot."""

from webhook.slots.chooser import SlotChooser
from webhook.slots.slot_numbers import SlotReports

__all__ = ["SlotChooser", "SlotReports"]
