"""Arrays, threads and compiled code. Imports nothing else of the package."""
