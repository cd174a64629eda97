"""Forms that change nothing outside this console, one module each with its `FORMS`."""
