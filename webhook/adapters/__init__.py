"""Adapters: implementations of the ports. They do not import each other; only `webhook.app` imports them."""
