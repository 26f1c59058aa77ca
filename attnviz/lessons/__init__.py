"""Lessons about attention: a few steps each, worked out by the maths that runs everything else."""
