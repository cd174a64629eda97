"""Rules over several fields of a policy, a module for each subject; `rule_list.py` lists all of them."""

from webhook.core.document.rules.rule_list import advice, errors

__all__ = ["advice", "errors"]
