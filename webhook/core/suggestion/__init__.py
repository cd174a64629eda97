"""Suggested limits of a policy: from the use that was observed to the numbers, with their evidence."""
