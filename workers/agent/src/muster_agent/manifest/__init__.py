"""Manifests: sealing a checkpoint's bytes into digests, and comparing bytes with them later."""
