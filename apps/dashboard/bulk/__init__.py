"""One verb over many rows of a list: those that were ticked, or all that match."""
