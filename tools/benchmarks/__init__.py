"""What attnviz costs, each figure a ratio within one run on one machine."""
