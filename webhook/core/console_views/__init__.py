"""Views of the console: what each page shows, from the documents of a running server."""
