"""What is behind ``tubal open``: results that a person edits in a browser.

``results`` is one folder of results with its journal; ``session`` is what can be done to it on a page, which ``server``
shows; ``exports`` writes it in other formats. Only the command line imports this package.
"""
