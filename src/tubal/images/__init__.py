"""Reading pictures: single files, folders and array files."""
