"""Lists: what each can be narrowed and sorted by, and its columns as a file. The page, the export and what acts on all
that match read the same URL in the same way."""
