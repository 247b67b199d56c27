"""Backup and restore of Muster's own database: a folder with one file of the engine's own format and a manifest."""
