"""Runnable baselines: training and evaluation on top of the package."""
