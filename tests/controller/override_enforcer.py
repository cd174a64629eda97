"""Helpers of the `override_enforcer` tests that other tests use, too."""

from webhook.core.document.loading import load_effective
from webhook.core.policy.model import LoadedPolicy

LOADED = LoadedPolicy(
    load_effective(
        b"""
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 1m, hard: {pods: 0}}]}
  breaker: {quotaExceeded: {count: 1}}
- name: other
  match: {namespaces: [other]}
  quota: {windows: [{window: 1m, hard: {pods: 0}}]}
  breaker: {quotaExceeded: {count: 1}}
- name: plain
  match: {namespaces: [plain]}
""",
        None,
    ).policy,
    "0" * 16,
)
