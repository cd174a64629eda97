"""Pages and acts: their declarations, and the documents that they read."""
