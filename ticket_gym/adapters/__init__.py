"""Adapters to other frameworks, one a module; each needs its own extra, and importing this package needs none."""
