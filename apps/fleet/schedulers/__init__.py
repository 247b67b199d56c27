"""What Muster asks of a cluster's scheduler, and how it asks Slurm and Kubernetes. Parsing is pure."""
