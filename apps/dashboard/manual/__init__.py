"""The manual: docs/*.md as pages, with a search over their sections. No models, no database."""
