"""Helpers of the `manual_breakers` tests that other tests use, too."""

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  modes: {breaker: Warn, quota: Enforce}
  quota: {windows: [{window: 1h, hard: {pods: 3}}]}
  breaker: {quotaExceeded: {count: 1}, openFor: 1h}
"""
