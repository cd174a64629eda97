"""Cross-field rules, listed by scope. A rule yields problems, and none if its fields are already invalid."""

from webhook.core.document.rules.rule_list import advice, errors

__all__ = ["advice", "errors"]
