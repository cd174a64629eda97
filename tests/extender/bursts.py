"""Helpers of the `bursts` tests that other tests use, too."""

from tests.core.reviewing import policy_of

POLICY = policy_of(
    """
- name: web
  match: {namespaces: [shop]}
  placement: {schedulerName: podgate-scheduler}
  scheduling: {hot: {cpu: 0.8}, numa: Required}
""",
    "nodes: {sources: [{prometheus: {url: 'http://p'}}]}",
)
