"""Messages of decisions: denials, warnings about rewritten values, and readable paths of fields."""
