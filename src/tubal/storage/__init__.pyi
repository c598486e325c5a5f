from .archive import DamagedFileError
from .models import load, save

__all__ = ["DamagedFileError", "load", "save"]
