"""What the parts of the GPU suite share. The standard library, nothing else."""
