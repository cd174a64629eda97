"""Policy tests: documents with cases, their run by the evaluation of `review` and `replay`, and the results."""
