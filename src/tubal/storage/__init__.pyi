from .models import DamagedFileError, load, save

__all__ = ["DamagedFileError", "load", "save"]
