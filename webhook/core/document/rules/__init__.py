"""Rules over several fields of a policy, a module for each subject; `rule_list.py` lists all of them."""

from webhook.core.document.rules.rule_list import find_advice, find_errors

__all__ = ["find_advice", "find_errors"]
