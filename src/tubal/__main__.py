"""``python -m tubal``: the ``tubal`` program where its script is not installed."""

from tubal.cli import main

if __name__ == "__main__":
    main()
