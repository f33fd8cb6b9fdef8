"""Shared code of the GPU suite's parts. It imports only the standard library."""
