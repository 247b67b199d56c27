"""The Muster node agent, its command line and the checkpoint library the control plane shares with it."""

__version__ = "0.1.0"
