"""For people: which entry of a policy does what to a Pod and why not, told by the functions that rewrite and check."""

from webhook.core.explanation.changes import Change, changes
from webhook.core.explanation.explain import Act, Mark, Note, explain

__all__ = ["Act", "Change", "Mark", "Note", "changes", "explain"]
