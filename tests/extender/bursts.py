"""Helpers of the `bursts` tests that other tests use, too."""

from collections.abc import Coroutine
from typing import Any

from tests.core.reviewing import policy_of

SERVICE = """
- name: web
  match: {namespaces: [shop]}
  placement: {schedulerName: podgate-scheduler}
  scheduling: {hot: {cpu: 0.8}, numa: Required}
"""
SOURCES = "nodes: {sources: [{prometheus: {url: 'http://p'}}]}"
POLICY = policy_of(SERVICE, SOURCES)


def run_at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")
