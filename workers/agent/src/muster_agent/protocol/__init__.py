"""Wire types that the agent and the control plane share. Nothing here does I/O."""
