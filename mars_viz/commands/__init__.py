"""What the commands of `mars-viz` that decode share, and those that fill a file of their own.

Knows argparse and terminals, as `cli` does; the model libraries are loaded only when something is decoded.
"""
