"""Prompts that the built-in pair continues well: for benchmarks, tests, sample runs and suggestions."""

STORIES = (
    "Once upon a time, there was a little girl named Lily.",
    "Tom and his dog went to the park.",
    '"Look at the moon!" said Ben.',
    "One day, a cat named Max found a key.",
    "Sara was sad because her doll was lost.",
    "It was a cold day. Anna put on her coat.",
    "The little frog wanted to fly.",
    "Mom said it was time for bed, but Tim was not tired.",
    "In the forest there lived a big bear.",
    "Sam had a new red kite.",
    "There was an old tree near the river.",
    "Lucy and Jack found a box under the bed.",
)
