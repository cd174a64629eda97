"""Console: pages in a browser about the services of a running server, and acts on them.

A page is a module in `pages/`, with a template of its name; an act is a module in `acts/`. Both are found
there. Why pages are made like this: docs/design/console-pages.md.
"""
