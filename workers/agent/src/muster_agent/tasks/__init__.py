"""What the control plane may ask of a node: one thin adapter per task kind, behind the node's own roots and limits."""
