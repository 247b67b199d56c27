"""The agent process: one thread polls, one per task slot works, one delivers, one forwards hook records."""
