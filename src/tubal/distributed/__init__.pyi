from .fitting import connect, fit

__all__ = ["connect", "fit"]
