"""Planted defects: named changes of the product, each of which a checker must catch in a history."""
