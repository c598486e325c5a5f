"""Reading images from disk: one picture, a folder of pictures, an array file.

``tubal.datasets`` builds on this package and is the public way in. The named collections are defined there, not here.
"""
