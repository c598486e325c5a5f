"""What is behind ``tubal open``: results that a person edits in a browser.

``session`` is the state of one folder of results, and what can be done to it; ``server`` shows it on a page, and
``exports`` writes it in other formats. Only the command line imports this package.
"""
