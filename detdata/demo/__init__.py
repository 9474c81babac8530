"""The demonstration: a training run, the same run killed, and three ways to go on from what the kill left.

The parent (run) starts each run as a process of its own, kills one with SIGKILL and compares what they logged; it needs
no torch. The children (train) are an ordinary training script.
"""
