"""Policy tests: documents with cases, their run by `review`'s and `replay`'s evaluation, and reports of the results."""
