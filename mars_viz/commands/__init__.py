"""Commands of `mars-viz` that decode, and other large ones. Model libraries are imported only when decoding."""
