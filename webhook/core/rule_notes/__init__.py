"""Notes for `review --explain`: what each entry of a policy did to a Pod, or why it did nothing."""

from webhook.core.rule_notes.changes import JsonChange, find_changes
from webhook.core.rule_notes.explain import Act, ChangedField, Note, explain

__all__ = ["Act", "ChangedField", "JsonChange", "Note", "explain", "find_changes"]
