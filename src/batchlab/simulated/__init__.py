"""A simulated device and training problem with exact known answers, behind the same interfaces as a real framework.

Needs numpy only. Tests of everything above these interfaces compare answers with formulas instead of measurements.
"""
