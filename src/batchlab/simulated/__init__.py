"""A device and a training problem whose truth is known exactly, behind the same seams as a real one. numpy only.

For tests of everything above the seams: their answers are compared with formulas instead of other measurements.
"""
