"""Output of `podgate review`: diffs, YAML, explanations, and the summary."""
