"""Developers' tools, run from the repository as ``python -m tools.NAME``. They are not part of the package.

``render`` writes the generated pages again from their stored JSON. ``criterion``, ``sparsity_rule`` and
``best_score_search`` are the studies behind defaults and settings. Nothing but tests imports this folder.
"""
