"""A policy whose service divides its Pods."""

SERVICES = """
- name: web
  match: {namespaces: [shop]}
  placement:
    nodeSelector: {disk: ssd}
    shares:
      base: {variant: on-demand, pods: 1}
      variants:
      - {name: spot, weight: 80, nodeSelector: {capacity: spot}, tolerations: [{key: spot, operator: Exists}]}
      - {name: on-demand, weight: 20, nodeSelector: {capacity: on-demand}}
"""
